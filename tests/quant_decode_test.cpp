#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>

#include "apr/quant.h"
#include "quant/iq_grids.cuh"
#include "support/quant_golden.h"

namespace apr {
namespace {

using test::bits_of;
using test::difference;
using test::load_golden;
using test::QuantGolden;

// Decodes blocks that end where their memory ends, into values that end where theirs does: an
// access past either is found by the sanitizer build.
std::vector<float> decode(const QuantType& type, std::span<const uint8_t> blocks) {
  const size_t n_blocks = blocks.size() / static_cast<size_t>(type.block_bytes);
  const auto exact = std::make_unique<std::byte[]>(blocks.size());
  std::memcpy(exact.get(), blocks.data(), blocks.size());
  std::vector<float> out(n_blocks * static_cast<size_t>(type.block_elems));
  type.dequantize(exact.get(), static_cast<int64_t>(n_blocks), out.data());
  return out;
}

bool is_plain_float(const QuantType& type) {
  return type.block_elems == 1;
}

// Bitwise: every type, 48 blocks (zero, subnormal, negative, large d among them), gguf-py's values.
TEST(QuantDecode, EveryTypeEqualsItsGolden) {
  for (const QuantType& type : quant_types()) {
    if (is_plain_float(type)) {
      continue;  // tested over all patterns below
    }
    SCOPED_TRACE(type.name);
    const QuantGolden golden = load_golden(type.name);
    ASSERT_FALSE(golden.blocks.empty()) << "no golden: tests/data/quant/" << type.name << ".blocks";
    ASSERT_EQ(golden.blocks.size() % static_cast<size_t>(type.block_bytes), 0u);
    const size_t n_blocks = golden.blocks.size() / static_cast<size_t>(type.block_bytes);
    ASSERT_GE(n_blocks, 48u);
    ASSERT_EQ(golden.values.size(), n_blocks * static_cast<size_t>(type.block_elems));
    EXPECT_EQ(difference(decode(type, golden.blocks), golden.values, type.block_elems), "");
  }
}

TEST(QuantDecode, ARunEqualsItsBlocksOneByOneAtAnyAlignment) {
  for (const QuantType& type : quant_types()) {
    SCOPED_TRACE(type.name);
    const auto block_bytes = static_cast<size_t>(type.block_bytes);
    const auto block_elems = static_cast<size_t>(type.block_elems);
    std::vector<uint8_t> blocks = load_golden(type.name).blocks;
    if (is_plain_float(type)) {
      for (size_t i = 0; i < 129 * block_bytes; ++i) {
        blocks.push_back(static_cast<uint8_t>(i * 37 % 120));  // finite in every format
      }
    }
    const std::vector<float> whole = decode(type, blocks);
    for (size_t shift = 0; shift < 4; ++shift) {
      std::vector<std::byte> shifted(blocks.size() + shift);
      std::memcpy(shifted.data() + shift, blocks.data(), blocks.size());
      std::vector<float> single(whole.size());
      for (size_t block_idx = 0; block_idx < blocks.size() / block_bytes; ++block_idx) {
        type.dequantize(shifted.data() + shift + block_idx * block_bytes, 1,
                        single.data() + block_idx * block_elems);
      }
      EXPECT_EQ(difference(single, whole, type.block_elems), "") << "shift " << shift;
    }
  }
}

TEST(QuantDecode, ZeroBlocksAreZerosAndNothingElseIsWritten) {
  for (const QuantType& type : quant_types()) {
    SCOPED_TRACE(type.name);
    const std::vector<std::byte> zeros(static_cast<size_t>(3 * type.block_bytes));
    std::vector<float> out(static_cast<size_t>(5 * type.block_elems), 7.0f);
    type.dequantize(zeros.data(), 0, out.data());
    EXPECT_EQ(out, std::vector<float>(out.size(), 7.0f));
    type.dequantize(zeros.data(), 3, out.data() + type.block_elems);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t block_idx = i / static_cast<size_t>(type.block_elems);
      EXPECT_EQ(out[i], block_idx == 0 || block_idx == 4 ? 7.0f : 0.0f) << i;
    }
  }
}

// Any bytes are a valid block: no trap, and for NaN or infinite scales a value all the same.
TEST(QuantDecode, AnyBytesDecode) {
  for (const QuantType& type : quant_types()) {
    SCOPED_TRACE(type.name);
    std::vector<uint8_t> blocks(static_cast<size_t>(256 * type.block_bytes));
    uint32_t state = type.id + 1;
    for (uint8_t& byte : blocks) {
      state = state * 1664525 + 1013904223;
      byte = static_cast<uint8_t>(state >> 24);
    }
    const std::vector<float> all_ones =
        decode(type, std::vector<uint8_t>(static_cast<size_t>(type.block_bytes), 0xff));
    EXPECT_EQ(all_ones.size(), static_cast<size_t>(type.block_elems));
    const std::vector<float> values = decode(type, blocks);
    std::set<uint32_t> distinct;
    for (const float value : values) {
      distinct.insert(bits_of(value));
    }
    EXPECT_GT(distinct.size(), 100u);
  }
}

// IEEE binary16 by the value it stands for; NaN keeps sign and payload, moved to the top.
float f16_by_value(uint32_t half) {
  const uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    const uint32_t bits = (half & 0x8000) << 16 | 0x7f800000 | mantissa << 13;
    float special;
    std::memcpy(&special, &bits, sizeof special);
    return special;
  }
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
  return static_cast<float>(sign * magnitude);
}

TEST(QuantDecode, F16IsExactForEveryPattern) {
  std::vector<uint8_t> halves;
  std::vector<float> expected;
  for (uint32_t half = 0; half < 65536; ++half) {
    halves.push_back(static_cast<uint8_t>(half));
    halves.push_back(static_cast<uint8_t>(half >> 8));
    expected.push_back(f16_by_value(half));
  }
  EXPECT_EQ(difference(decode(*find_quant_type("F16"), halves), expected, 1), "");
}

TEST(QuantDecode, Bf16IsExactForEveryPattern) {
  std::vector<uint8_t> brains;
  std::vector<float> expected;
  for (uint32_t brain = 0; brain < 65536; ++brain) {
    brains.push_back(static_cast<uint8_t>(brain));
    brains.push_back(static_cast<uint8_t>(brain >> 8));
    const uint8_t f32[4] = {0, 0, static_cast<uint8_t>(brain), static_cast<uint8_t>(brain >> 8)};
    expected.emplace_back();
    std::memcpy(&expected.back(), f32, sizeof f32);
  }
  EXPECT_EQ(difference(decode(*find_quant_type("BF16"), brains), expected, 1), "");
}

TEST(QuantDecode, F32IsCopiedBitForBit) {
  std::vector<uint32_t> patterns = {0,          0x80000000, 1,          0x807fffff,
                                    0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001,
                                    0xffbfffff, 0x7fc00000, 0xffffffff};
  for (uint32_t pattern = 0; pattern < 0xffff0000; pattern += 65521) {
    patterns.push_back(pattern);
  }
  std::vector<uint8_t> bytes(patterns.size() * 4);
  std::memcpy(bytes.data(), patterns.data(), bytes.size());
  const std::vector<float> values = decode(*find_quant_type("F32"), bytes);
  for (size_t i = 0; i < patterns.size(); ++i) {
    ASSERT_EQ(bits_of(values[i]), patterns[i]) << i;
  }
}

template <class Grid>
uint64_t fnv1a(const Grid& grid) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(grid.entry);
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < sizeof grid.entry; ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return hash;
}

// Goldens reach only part of the big grids. FNV-1a over the grids as gguf-py builds them
// (quants.py, init_grid, as int8), which stores them in another form than the source of ours.
TEST(IqGrids, HoldEveryConstant) {
  EXPECT_EQ(fnv1a(quant::kIq2XxsGrid), 0xbb4ee025b5ac6e8e);
  EXPECT_EQ(fnv1a(quant::kIq2XsGrid), 0xc9b1ee61e79909bd);
  EXPECT_EQ(fnv1a(quant::kIq2SGrid), 0x123edd38a3b62b90);
  EXPECT_EQ(fnv1a(quant::kIq1SGrid), 0x6703ed863501ae2e);
  EXPECT_EQ(fnv1a(quant::kIq3XxsGrid), 0xdfa5dc83d6a155d5);
  EXPECT_EQ(fnv1a(quant::kIq3SGrid), 0xfa37020c25b44829);
}

}  // namespace
}  // namespace apr
