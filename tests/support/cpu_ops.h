// Random inputs and comparisons for the tests of cpu/fast against cpu/reference.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "apr/quant.h"
#include "cpu/fast/ops.h"

namespace apr::test {

// Half the distance between neighbouring f32 values at 1: the relative error of one rounding.
constexpr double kF32Rounding = 0x1p-24;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }

  std::vector<float> floats(int64_t n_elems, float lowest = -1.0F, float highest = 1.0F) {
    std::vector<float> values(static_cast<size_t>(n_elems));
    for (float& value : values) {
      value = lowest + (highest - lowest) * static_cast<float>(engine_() >> 8) * 0x1p-24F;
    }
    return values;
  }

 private:
  std::mt19937 engine_;
};

// Whole blocks of a type: those of the golden file, or finite values where the type has none.
inline std::vector<std::byte> sample_blocks(const QuantType& type) {
  const auto path =
      std::filesystem::path(APR_TEST_DATA) / "quant" / (std::string(type.name) + ".blocks");
  std::vector<char> bytes;
  if (std::filesystem::exists(path)) {
    bytes.resize(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary)
        .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  } else {
    // Little-endian floats of any width, exponents near that of 1: the top byte decides.
    Random random(type.id);
    bytes.resize(static_cast<size_t>(512 * type.block_bytes));
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool is_top = (i + 1) % static_cast<size_t>(type.block_bytes) == 0;
      bytes[i] = static_cast<char>(is_top ? 0x38 + random.below(8) + 128 * random.below(2)
                                          : random.below(256));
    }
  }
  std::vector<std::byte> blocks(bytes.size() / static_cast<size_t>(type.block_bytes) *
                                static_cast<size_t>(type.block_bytes));
  std::memcpy(blocks.data(), bytes.data(), blocks.size());
  return blocks;
}

// A matrix of a type made of sample blocks in random order, and its values.
struct Matrix {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [n_experts, n_rows, n_cols] f32
  cpu::MatrixRef ref;

  Matrix(const QuantType& type, int64_t n_experts, int64_t n_rows, int64_t n_cols, uint32_t seed) {
    const std::vector<std::byte> blocks = sample_blocks(type);
    const int64_t n_samples = static_cast<int64_t>(blocks.size()) / type.block_bytes;
    const int64_t n_blocks = n_experts * n_rows * n_cols / type.block_elems;
    Random random(seed);
    bytes.resize(static_cast<size_t>(n_blocks * type.block_bytes));
    for (int64_t block = 0; block < n_blocks; ++block) {
      std::memcpy(bytes.data() + block * type.block_bytes,
                  blocks.data() + random.below(n_samples) * type.block_bytes,
                  static_cast<size_t>(type.block_bytes));
    }
    values.resize(static_cast<size_t>(n_experts * n_rows * n_cols));
    type.dequantize(bytes.data(), n_blocks, values.data());
    ref = {&type, bytes.data(), n_experts, n_rows, n_cols, type.row_bytes(n_cols)};
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
};

// Runs `check` with every instruction set that this machine and the build have.
template <class Check>
void for_each_isa(const Check& check) {
  for (const auto isa :
       {cpu::fast::Isa::kBaseline, cpu::fast::Isa::kAvx2, cpu::fast::Isa::kAvx512}) {
    if (cpu::fast::set_isa(isa)) {
      SCOPED_TRACE(cpu::fast::isa_name());
      check();
    }
  }
  cpu::fast::set_isa(cpu::fast::best_isa());
}

// Equal bits, or both NaN.
inline ::testing::AssertionResult same_bits(std::span<const float> found,
                                            std::span<const float> expected) {
  if (found.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << found.size() << " elements, expected " << expected.size();
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(expected[i]) &&
        !(std::isnan(found[i]) && std::isnan(expected[i]))) {
      return ::testing::AssertionFailure()
             << "element " << i << " is " << found[i] << ", expected " << expected[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// |found[i] - expected[i]| <= bound(i) for every element; a NaN fails.
template <class Bound>
::testing::AssertionResult within(std::span<const float> found, std::span<const float> expected,
                                  const Bound& bound) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    if (!(error <= bound(i))) {
      return ::testing::AssertionFailure() << "element " << i << " is " << found[i] << ", expected "
                                           << expected[i] << " +- " << bound(i);
    }
  }
  return ::testing::AssertionSuccess();
}

// A buffer whose every element must be written: NaN at first.
inline std::vector<float> unwritten(int64_t n_elems) {
  return std::vector<float>(static_cast<size_t>(n_elems), std::nanf(""));
}

}  // namespace apr::test
