// Few tokens times matrices of one type, what must come out and how far off matvec_rows and
// small_gemm may be: shared by its tests on the host and on the GPU.
#pragma once

#include "support/moe_problem.h"

namespace apr::test {

// Rows of very different size: ordinary, hot, all zero, small, with outliers.
inline std::vector<float> tier_x(int64_t n_tokens, int64_t n_cols, std::mt19937& random) {
  constexpr float kSizes[] = {1.0F, 1e6F, 0.0F, 1e-6F, 30.0F};
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> x;
  for (int64_t elem = 0; elem < n_tokens * n_cols; ++elem) {
    x.push_back(normal(random) * kSizes[elem / n_cols % 5] * (elem % 97 == 5 ? 20.0F : 1.0F));
  }
  return x;
}

// Row `row` of a matrix (a stack of one) times x [n_cols], with u = 2^-24.
//   x is rounded to 11 bits, those far below the largest of the row to 2^-38 of it, and so is w
//   where not `exact_weights`, after scale * q + offset was rounded once where the reference rounds
//   twice. Tensor cores, which cut instead of rounding, add the n_cols products, and the n_cols /
//   16 sums of groups are added up over steps, warps and blocks: (n_cols + n_cols / 16 + 64)
//   roundings of 2u; of groups, the part of the offset and the rest apart.
inline Bounded tier_product(const MoeStack& matrix, int64_t row, const float* x,
                            bool exact_weights) {
  const size_t first = static_cast<size_t>(row * matrix.n_cols);
  double largest_x = 0.0;
  for (int64_t col = 0; col < matrix.n_cols; ++col) {
    largest_x = std::max(largest_x, std::abs(static_cast<double>(x[col])));
  }
  Bounded sum;
  double magnitude = 0.0;
  for (int64_t col = 0; col < matrix.n_cols; ++col) {
    const double value = matrix.values[first + static_cast<size_t>(col)];
    const double w = std::abs(value), size = std::abs(static_cast<double>(x[col]));
    const double parts =
        w + 2.0 * std::abs(static_cast<double>(matrix.offsets[first + static_cast<size_t>(col)]));
    const double x_error = size * 0x1p-11 + largest_x * 0x1p-38;
    double w_error = 2 * 0x1p-24 * parts;
    if (!exact_weights) {
      w_error += w * 0x1p-11 + matrix.largest * 0x1p-38;
    }
    sum.value += value * x[col];
    sum.bound += w * x_error + w_error * (size + x_error);
    magnitude += (parts + w_error) * (size + x_error);
  }
  const double n = static_cast<double>(matrix.n_cols);
  sum.bound += (n + n / 16.0 + 64.0) * 2 * 0x1p-24 * magnitude + n * 1e-43;
  return sum;
}

}  // namespace apr::test
