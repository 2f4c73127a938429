#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "apr/quant.h"

namespace apr {
namespace {

TEST(QuantTable, IsAscendingUniqueAndComplete) {
  std::set<std::string_view> names;
  int64_t last_id = -1;
  for (const QuantType& type : quant_types()) {
    SCOPED_TRACE(type.name);
    EXPECT_GT(static_cast<int64_t>(type.id), last_id);
    last_id = type.id;
    EXPECT_TRUE(names.insert(type.name).second);
    EXPECT_GT(type.block_elems, 0);
    EXPECT_GT(type.block_bytes, 0);
    EXPECT_NE(type.dequantize, nullptr);
  }
  EXPECT_GE(names.size(), 26u);
}

TEST(QuantTable, LookupsFindEveryRowAndNothingElse) {
  for (const QuantType& type : quant_types()) {
    EXPECT_EQ(find_quant_type(type.id), &type);
    EXPECT_EQ(find_quant_type(type.name), &type);
    const auto layout = quant_type_layout(type.id);
    ASSERT_TRUE(layout.has_value()) << type.name;
    EXPECT_EQ(layout->block_elems, type.block_elems);
    EXPECT_EQ(layout->block_bytes, type.block_bytes);
    EXPECT_EQ(quant_type_label(type.id),
              std::to_string(type.id) + " (" + std::string(type.name) + ")");
  }
  for (const uint32_t id : {4u, 9u, 15u, 24u, 31u, 41u, 138u, 999u, 0xffffffffu}) {
    EXPECT_EQ(find_quant_type(id), nullptr) << id;
    EXPECT_FALSE(quant_type_layout(id).has_value()) << id;
  }
  EXPECT_EQ(find_quant_type("Q4_k"), nullptr);
  EXPECT_EQ(find_quant_type("Q4_K "), nullptr);
  EXPECT_EQ(find_quant_type(""), nullptr);
}

// GGMLQuantizationType and GGML_QUANT_SIZES of gguf-py 0.19 (constants.py).
struct GgufSize {
  uint32_t id;
  const char* name;
  int block_elems, block_bytes;
};
constexpr GgufSize kGgufSizes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
    {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
};

TEST(QuantTable, SizesAreThoseOfGguf) {
  for (const GgufSize& size : kGgufSizes) {
    const QuantType* type = find_quant_type(size.id);
    ASSERT_NE(type, nullptr) << size.name;
    EXPECT_EQ(type->name, size.name);
    EXPECT_EQ(type->block_elems, size.block_elems) << size.name;
    EXPECT_EQ(type->block_bytes, size.block_bytes) << size.name;
  }
}

TEST(QuantTable, RowBytesCountWholeBlocks) {
  EXPECT_EQ(find_quant_type("Q4_K")->row_bytes(4096), 16 * 144);
  EXPECT_EQ(find_quant_type("Q8_0")->row_bytes(64), 68);
  EXPECT_EQ(find_quant_type("BF16")->row_bytes(3), 6);
  EXPECT_EQ(find_quant_type("F32")->row_bytes(int64_t{1} << 40), int64_t{4} << 40);
}

TEST(QuantLabel, NamesKnownIdsThatAreNotSupported) {
  EXPECT_EQ(quant_type_label(12), "12 (Q4_K)");
  EXPECT_EQ(quant_type_label(9), "9 (Q8_1)");
  EXPECT_EQ(quant_type_label(28), "28 (F64)");
  EXPECT_EQ(quant_type_label(31), "31 (Q4_0_4_4, removed from ggml)");
  EXPECT_EQ(quant_type_label(42), "42 (Q2_0)");
  EXPECT_EQ(quant_type_label(138), "138 (ik_llama.cpp IQ3_K)");
  EXPECT_EQ(quant_type_label(156), "156 (ik_llama.cpp IQ3_KS)");
  EXPECT_EQ(quant_type_label(202), "202 (ik_llama.cpp Q4_0_R8)");
  EXPECT_EQ(quant_type_label(999), "999");
  EXPECT_EQ(quant_type_label(0xffffffffu), "4294967295");
}

}  // namespace
}  // namespace apr
