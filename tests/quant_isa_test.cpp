#include <gtest/gtest.h>

#include "apr/quant.h"
#include "support/quant_golden.h"
#include "support/quant_isa.h"

namespace apr {
namespace {

// Levels of the x86-64 psABI, by features: clang 14 does not know the names of the levels.
bool has_v2() {
  return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.2") &&
         __builtin_cpu_supports("popcnt");
}

bool has_v3() {
  return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

// Bitwise, up to the payload of NaNs: the same source, vectorised for the level, over the goldens
// and over bytes whose scales take every f16 exponent, NaN and infinity among them.
void expect_equal_to_reference(const test::IsaDecoder* decoders) {
  size_t n_types = 0;
  for (const test::IsaDecoder* row = decoders; row->type_name != nullptr; ++row, ++n_types) {
    SCOPED_TRACE(row->type_name);
    const QuantType* type = find_quant_type(row->type_name);
    ASSERT_NE(type, nullptr);
    std::vector<uint8_t> blocks = test::load_golden(row->type_name).blocks;
    const size_t random_bytes = 4099 * static_cast<size_t>(type->block_bytes);
    uint32_t state = type->id;
    for (size_t i = 0; i < random_bytes; ++i) {
      state = state * 1664525 + 1013904223;
      blocks.push_back(static_cast<uint8_t>(state >> 24));
    }
    const size_t n_blocks = blocks.size() / static_cast<size_t>(type->block_bytes);
    std::vector<float> expected(n_blocks * static_cast<size_t>(type->block_elems));
    std::vector<float> found(expected.size());
    type->dequantize(reinterpret_cast<const std::byte*>(blocks.data()),
                     static_cast<int64_t>(n_blocks), expected.data());
    row->decode(blocks.data(), static_cast<int64_t>(n_blocks), found.data());
    // A float's NaN is copied, never computed.
    const bool any_nan = type->block_elems > 1;
    EXPECT_EQ(test::difference(found, expected, type->block_elems, any_nan), "");
  }
  EXPECT_EQ(n_types, quant_types().size());
}

TEST(QuantIsa, V2EqualsTheReference) {
  if (!has_v2()) {
    GTEST_SKIP() << "NOT RUN: this CPU does not have the x86-64-v2 instructions";
  }
  expect_equal_to_reference(test::isa_decoders_v2());
}

TEST(QuantIsa, V3EqualsTheReference) {
  if (!has_v3()) {
    GTEST_SKIP() << "NOT RUN: this CPU does not have the x86-64-v3 instructions";
  }
  expect_equal_to_reference(test::isa_decoders_v3());
}

TEST(QuantIsa, V4EqualsTheReference) {
  if (!has_v4()) {
    GTEST_SKIP() << "NOT RUN: this CPU does not have the x86-64-v4 instructions";
  }
  expect_equal_to_reference(test::isa_decoders_v4());
}

}  // namespace
}  // namespace apr
