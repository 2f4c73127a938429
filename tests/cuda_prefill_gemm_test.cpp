// Which products a prefill runs: pure functions, no GPU.
#include "cuda/prefill_gemm.h"

#include <gtest/gtest.h>

namespace apr::cuda {
namespace {

Weight matrix(std::string_view type, int64_t n_rows, int64_t n_cols) {
  Weight weight;
  weight.name = "blk.3.ffn_up";
  weight.type = find_quant_type(type);
  weight.n_rows = n_rows;
  weight.n_cols = n_cols;
  return weight;
}

TEST(PrefillGemm, IsReadFromItsVariable) {
  for (const PrefillGemm gemm : {PrefillGemm::kF16, PrefillGemm::kF32, PrefillGemm::kDp4a}) {
    const ParsedPrefillGemm parsed = parse_prefill_gemm(prefill_gemm_name(gemm));
    EXPECT_EQ(parsed.gemm, gemm);
    EXPECT_EQ(parsed.warning, "");
  }
  for (const char* text : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(parse_prefill_gemm(text).gemm, PrefillGemm::kF16);
    EXPECT_EQ(parse_prefill_gemm(text).warning, "");
  }
  for (const char* text : {"F16", "mmq", "f16 ", "fp32"}) {
    const ParsedPrefillGemm parsed = parse_prefill_gemm(text);
    EXPECT_EQ(parsed.gemm, PrefillGemm::kF16) << text;
    EXPECT_EQ(parsed.warning, "APR_QWEN35_PREFILL_GEMM=" + std::string(text) +
                                  " is not f16, f32 or dp4a; f16 is used");
  }
}

TEST(PrefillGemm, IsF32InExactMode) {
  for (const PrefillGemm gemm : {PrefillGemm::kF16, PrefillGemm::kF32, PrefillGemm::kDp4a}) {
    EXPECT_EQ(choose_prefill_gemm(gemm, false).ran, gemm);
    EXPECT_EQ(choose_prefill_gemm(gemm, false).reason, "");
    EXPECT_EQ(choose_prefill_gemm(gemm, true).ran, PrefillGemm::kF32);
    EXPECT_EQ(choose_prefill_gemm(gemm, true).reason.empty(), gemm == PrefillGemm::kF32);
  }
}

struct GemmRow {
  PrefillGemm mode;
  std::string_view type;
  int64_t n_rows, n_cols, ldc;
  PrefillGemm ran;
  const char* reason;
};

TEST(PrefillGemm, Dp4aTakesDenseQ4KWithWholeBlocksAlone) {
  using enum PrefillGemm;
  const GemmRow rows[] = {
      {kF16, "Q4_K", 64, 256, 64, kF16, ""},
      {kF16, "F32", 65, 32, 70, kF16, ""},
      {kF32, "Q4_K", 64, 256, 64, kF32, ""},
      {kDp4a, "Q4_K", 64, 256, 64, kDp4a, ""},
      {kDp4a, "Q4_K", 65, 4096, 65, kDp4a, ""},
      {kDp4a, "Q4_K", 64, 256, 65, kF32,
       "blk.3.ffn_up has 64 rows and results 65 apart, dp4a takes them dense"},
      {kDp4a, "Q4_K", 64, 288, 64, kF32,
       "blk.3.ffn_up has 288 columns, dp4a takes multiples of 256"},
      {kDp4a, "Q6_K", 64, 256, 64, kF32, "blk.3.ffn_up is Q6_K, dp4a multiplies Q4_K alone"},
      {kDp4a, "F32", 64, 256, 64, kF32, "blk.3.ffn_up is F32, dp4a multiplies Q4_K alone"},
  };
  for (const GemmRow& row : rows) {
    const GemmChoice choice =
        choose_gemm(row.mode, matrix(row.type, row.n_rows, row.n_cols), row.ldc);
    EXPECT_EQ(choice.ran, row.ran) << row.type << " " << row.ldc;
    EXPECT_EQ(choice.reason, row.reason);
  }
}

TEST(HalfStore, KeepsWeightsWhereAGibibyteStaysFree) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(choose_half_store(5 * kGiB, 6 * kGiB, "16-bit").store, HalfStore::kCached);
  EXPECT_EQ(choose_half_store(5 * kGiB, 6 * kGiB, "16-bit").reason, "");
  const HalfStoreChoice tight = choose_half_store(5 * kGiB + 1, 6 * kGiB, "16-bit");
  EXPECT_EQ(tight.store, HalfStore::kStreamed);
  EXPECT_NE(tight.reason.find("do not fit in 6.4 GB"), std::string::npos) << tight.reason;
  EXPECT_EQ(choose_half_store(0, kGiB - 1, "16-bit").store, HalfStore::kStreamed);
  EXPECT_EQ(choose_half_store(UINT64_MAX, UINT64_MAX, "16-bit").store, HalfStore::kStreamed);
}

}  // namespace
}  // namespace apr::cuda
