// E4M3 on the host: every code, every tie, and the kernels that make rows and weights of it, as
// they are. The card's conversion is compared with this one in gpu_fp8_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#define APR_QUANT_FILE "apr_quant_files.h"
// Kernels of the overlay, see tests/cuda_tests.cmake.
#include "dequant_octet.cuh"
#include "product_rows.cu"
#include "quant/f32.cuh"
#include "scale_rows.cu"

#include "support/simt_memory.h"

namespace apr {
namespace {

using test::Aligned;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(E4m3, HasTheValueOfEveryCode) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float found = e4m3_value(code);
    const int exponent = static_cast<int>(code >> 3 & 15U), mantissa = static_cast<int>(code & 7U);
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(found)) << code;
      EXPECT_EQ(e4m3_bits(found), 0x7f) << code;
      continue;
    }
    const double magnitude = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                           : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
    EXPECT_EQ(found, code >= 128 ? -magnitude : magnitude) << code;
    EXPECT_EQ(std::signbit(found), code >= 128) << code;
    EXPECT_EQ(e4m3_bits(found), code);
  }
  EXPECT_EQ(e4m3_value(0x7e), 448.0F);
  EXPECT_EQ(e4m3_value(0x08), 0x1p-6F);
  EXPECT_EQ(e4m3_value(0x01), 0x1p-9F);
}

TEST(E4m3, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const float below = e4m3_value(code), above = e4m3_value(code + 1);
    const float middle = (below + above) / 2;  // exact: five bits
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    for (const uint32_t sign : {0U, 0x80U}) {
      const auto bits = [sign](float value) { return e4m3_bits(sign != 0 ? -value : value); };
      EXPECT_EQ(bits(middle), even | sign) << middle;
      EXPECT_EQ(bits(std::nextafter(middle, 0.0F)), code | sign) << middle;
      EXPECT_EQ(bits(std::nextafter(middle, kInfinity)), (code + 1) | sign) << middle;
    }
  }
}

TEST(E4m3, StopsAt448AndKeepsNaN) {
  for (const float large : {448.1F, 463.9F, 464.0F, 480.0F, 1e5F, 3e38F, kInfinity}) {
    EXPECT_EQ(e4m3_bits(large), 0x7e) << large;
    EXPECT_EQ(e4m3_bits(-large), 0xfe) << large;
  }
  EXPECT_EQ(e4m3_bits(NAN), 0x7f);
  EXPECT_EQ(pack_e4m3(1.0F, -448.0F), 0xfe38);  // low first
}

// The power of two that brings `largest` to [2^7, 2^8).
float power(float largest) {
  return largest > 0.0F ? std::ldexp(1.0F, 7 - std::ilogb(largest)) : 0x1p-6F;
}

// Rows of E4M3 as a kernel left them, against the values they must be of.
void expect_rows(const Aligned<uint8_t>& codes, const Aligned<float>& undo,
                 const std::vector<float>& values, int64_t n_cols) {
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(n_cols)) {
    float largest = 0.0F;
    for (size_t col = 0; col < static_cast<size_t>(n_cols); ++col) {
      largest = std::fmax(largest, std::abs(values[first + col]));
    }
    // 2^6 of it undoes the weights.
    EXPECT_EQ(undo[first / static_cast<size_t>(n_cols)], 64.0F / power(largest)) << largest;
    for (size_t at = first; at < first + static_cast<size_t>(n_cols); ++at) {
      ASSERT_EQ(codes[at], e4m3_bits(values[at] * power(largest))) << at << ": " << values[at];
      const double found = static_cast<double>(e4m3_value(codes[at])) / power(largest);
      // Three bits behind the point, and multiples of 2^-9 against a largest of 2^7 and more.
      ASSERT_LE(std::abs(found - values[at]),
                0x1p-4 * std::abs(static_cast<double>(values[at])) + 0x1p-17 * largest);
    }
  }
}

std::vector<float> random_values(size_t n_elems, float size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> values(n_elems);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

template <int kVector>
void expect_scaled(int64_t n_cols) {
  constexpr size_t kRows = 5;
  const size_t cols = static_cast<size_t>(n_cols);
  std::vector<float> values = random_values(kRows * cols, 1.0F, 3);
  constexpr float kSizes[kRows] = {1.0F, 1e5F, 0.0F, 1e-30F, 3e37F};
  for (size_t at = 0; at < values.size(); ++at) {
    values[at] *= kSizes[at / cols];
  }
  const Aligned<float> x(values), undo(kRows);
  const Aligned<uint8_t> codes(values.size() + 1);
  codes[values.size()] = 0x55;
  ScaleRowsParams params{x.data(), {}, static_cast<int32_t>(n_cols), {codes.data(), undo.data()}};
  simt::launch({kRows, 1, 1}, 64, 0, [&] { scale_rows<kVector, true>(params); });
  expect_rows(codes, undo, values, n_cols);
  EXPECT_EQ(codes[values.size()], 0x55) << "past the rows";
}

TEST(E4m3OnHost, ScalesRows) {
  expect_scaled<4>(32);
  expect_scaled<4>(652);
  expect_scaled<1>(33);
  expect_scaled<1>(1);
}

// 448 must not stand for what is not finite: the whole row becomes NaN.
TEST(E4m3OnHost, MakesARowWithAnInfinityNaN) {
  std::vector<float> values = random_values(64, 1.0F, 5);
  values[7] = -kInfinity;
  values[40] = NAN;  // of the second row, alone
  const Aligned<float> x(values), undo(2);
  const Aligned<uint8_t> codes(values.size());
  ScaleRowsParams params{x.data(), {}, 32, {codes.data(), undo.data()}};
  simt::launch({2, 1, 1}, 32, 0, [&] { scale_rows<4, true>(params); });
  for (size_t at = 0; at < 64; ++at) {
    EXPECT_EQ(codes[at] == 0x7f, at < 32 || at == 40) << at;
  }
}

// The passes that end in E4M3 rows make them of what they else store as f32.
template <int kVector>
void expect_passes(int64_t n_cols) {
  constexpr size_t kRows = 3;
  const size_t cols = static_cast<size_t>(n_cols), n_elems = kRows * cols;
  const Aligned<float> products(random_values(2 * n_elems, 100.0F, 11));
  const Aligned<float> undo_products(std::vector<float>{0x1p-5F, 64.0F, 0x1p-20F});
  const Aligned<float> largest(std::vector<float>{20.0F});
  const Aligned<float> x(random_values(n_elems, 1.0F, 12)), norm(random_values(cols, 1.0F, 13));
  const Products all{products.data(), undo_products.data(), 2 * n_cols};
  const auto columns = [&](int part) {
    return ProductColumns{largest.data(), nullptr, static_cast<int32_t>(part * n_cols),
                          static_cast<int32_t>(n_cols)};
  };
  for (const bool keep : {false, true}) {
    const Aligned<float> y(n_elems), sum(n_elems), undo(kRows);
    const Aligned<uint8_t> codes(n_elems);
    const E4m3Rows rows{codes.data(), undo.data()};
    const auto values = [&] { return std::vector<float>(y.data(), y.data() + n_elems); };

    SwigluRowsParams swiglu{all, columns(0), columns(1), {}, y.data(), keep};
    simt::launch({kRows, 1, 1}, 64, cols * 4, [&] { swiglu_rows<kVector>(swiglu); });
    swiglu.y_f32 = nullptr;
    swiglu.y_e4m3 = rows;
    simt::launch({kRows, 1, 1}, 64, cols * 4, [&] { swiglu_rows<kVector, true>(swiglu); });
    expect_rows(codes, undo, values(), n_cols);

    SumNormRowsParams sums{};
    sums.x = x.data();
    sums.products = all;
    sums.columns = columns(1);
    sums.sum = sum.data();
    sums.norm_weight = norm.data();
    sums.y_f32 = y.data();
    sums.eps = 1e-6F;
    sums.n_cols = static_cast<int32_t>(n_cols);
    sums.keep = keep;
    simt::launch({kRows, 1, 1}, 64, cols * 4, [&] { sum_norm_rows<kVector>(sums); });
    sums.y_f32 = nullptr;
    sums.y_e4m3 = rows;
    simt::launch({kRows, 1, 1}, 64, cols * 4, [&] { sum_norm_rows<kVector, true>(sums); });
    expect_rows(codes, undo, values(), n_cols);
  }
}

TEST(E4m3OnHost, PassesEndInTheRowsOfTheirValues) {
  expect_passes<4>(448);
  expect_passes<1>(65);
}

// Weights: each value by the power, in vectors of eight and at a tail.
TEST(E4m3OnHost, DecodesWeights) {
  using Plain = quant::F32;
  for (const int n_cols : {32, 37}) {
    const std::vector<float> values = random_values(static_cast<size_t>(2 * n_cols), 1.0F, 17);
    const Aligned<float> w(values);
    const Aligned<uint8_t> codes(values.size());
    DequantParams params{
        {reinterpret_cast<const uint8_t*>(w.data()), 2, n_cols}, codes.data(), 0, n_cols, 64.0F};
    for (int row = 0; row < 2; ++row) {
      for (int octet = 0; octet < 8; ++octet) {
        dequant_octet<Plain, false, DequantForm::kE4m3>(params, octet, row);
      }
    }
    for (size_t at = 0; at < values.size(); ++at) {
      EXPECT_EQ(codes[at], e4m3_bits(values[at] * 64.0F)) << at;
    }
  }
}

}  // namespace
}  // namespace apr
