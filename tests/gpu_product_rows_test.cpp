// The passes between the products of a prefill on the GPU, against f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "cuda/launch_product_rows.h"
#include "support/gpu.h"
#include "support/quant_encode.h"

namespace apr::cuda {
namespace {

constexpr int64_t kProductRows = 5;
constexpr float kRowsEps = 1e-6F;
constexpr float kUndoWeight = 0x1p-9F;  // of matrices whose largest value is kLargest
constexpr float kLargest = 20.0F;       // in [2^4, 2^5): brought to [2^13, 2^14) by 2^9
constexpr int64_t kGuardElems = 3;

// Products of kProductRows rows and two matrices, with what undoes them, and an input as long as
// one.
struct Problem {
  int64_t n_cols, stride;
  std::vector<float> products, undo, bias, x, norm;

  explicit Problem(int64_t columns) : n_cols(columns), stride(2 * columns) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, 1.0F);
    undo = {1.0F, 0x1p-6F, 0x1p20F, 0x1p-20F, 4.0F};
    for (int64_t row = 0; row < kProductRows; ++row) {
      for (int64_t col = 0; col < stride; ++col) {
        products.push_back(normal(random) / undo[static_cast<size_t>(row)] / kUndoWeight *
                           (row == 2 ? 1e5F : 1.0F));  // the hot row
      }
    }
    for (int64_t col = 0; col < stride; ++col) {
      bias.push_back(normal(random));
    }
    for (int64_t elem = 0; elem < kProductRows * n_cols; ++elem) {
      x.push_back(normal(random));
    }
    for (int64_t col = 0; col < n_cols; ++col) {
      norm.push_back(normal(random));
    }
  }
  // In f64, but for the sum with the bias, which the kernels round to f32.
  double product(int64_t row, int64_t col) const {
    return static_cast<float>(products[static_cast<size_t>(row * stride + col)] *
                              undo[static_cast<size_t>(row)] * kUndoWeight) +
           bias[static_cast<size_t>(col)];
  }
};

// The values of F16Rows, and that nothing past them was written.
std::vector<double> read_rows(const DeviceBuffer& values, const DeviceBuffer& undo,
                              int64_t n_cols) {
  const std::vector<uint16_t> halves = test::to_host<uint16_t>(values);
  const std::vector<float> scales = test::to_host<float>(undo);
  std::vector<double> found;
  for (int64_t elem = 0; elem < kProductRows * n_cols; ++elem) {
    found.push_back(static_cast<double>(test::from_f16(halves[static_cast<size_t>(elem)])) *
                    scales[static_cast<size_t>(elem / n_cols)]);
  }
  for (size_t elem = static_cast<size_t>(kProductRows * n_cols); elem < halves.size(); ++elem) {
    EXPECT_EQ(halves[elem], 0xffff) << "past the rows";
  }
  return found;
}

// f16 has 11 bits of a value, and multiples of 2^-24 against a largest of at least 2^13.
double f16_bound(double wanted, double largest_of_row, double relative) {
  return std::abs(wanted) * (0x1p-11 * 1.001 + relative) + 0x1p-38 * largest_of_row;
}

void check(std::span<const double> found, std::span<const double> wanted, int64_t n_cols,
           double relative, bool half) {
  for (int64_t row = 0; row < kProductRows; ++row) {
    double largest = 0.0;
    for (int64_t col = 0; col < n_cols; ++col) {
      largest = std::max(largest, std::abs(wanted[static_cast<size_t>(row * n_cols + col)]));
    }
    for (int64_t col = 0; col < n_cols; ++col) {
      const size_t at = static_cast<size_t>(row * n_cols + col);
      const double bound =
          half ? f16_bound(wanted[at], largest, relative) : relative * std::abs(wanted[at]) + 1e-40;
      ASSERT_LE(std::abs(found[at] - wanted[at]), bound)
          << "row " << row << ", column " << col << ": " << found[at] << ", wanted " << wanted[at];
    }
  }
}

std::vector<double> widened(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class GpuProductRows : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    APR_NEED_GPU();
    std::vector<KernelRow> rows;
    for (const KernelRow& row : kernel_table()) {
      if (runs_on(row, use_device(0).architecture) &&
          (row.file == "scale_rows.cu" || row.file == "product_rows.cu")) {
        rows.push_back(row);
      }
    }
    KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
    kernels_ = std::make_unique<KernelLibrary>(compiler, rows, use_device(0).architecture);
    stream_ = create_stream();
    const int64_t n_cols = GetParam();
    n_elems_ = static_cast<size_t>(kProductRows * n_cols);
    problem_ = std::make_unique<Problem>(n_cols);
    products_ = test::to_device<float>(problem_->products);
    undo_ = test::to_device<float>(problem_->undo);
    bias_ = test::to_device<float>(problem_->bias);
    x_ = test::to_device<float>(problem_->x);
    norm_ = test::to_device<float>(problem_->norm);
    largest_ = test::to_device<float>(std::array{kLargest});
    const std::vector<uint16_t> guards(n_elems_ + kGuardElems, 0xffff);  // NaN
    y_half_ = test::to_device<uint16_t>(guards);
    const std::vector<float> nans(n_elems_, NAN);
    y_f32_ = test::to_device<float>(nans);
    sum_ = test::to_device<float>(nans);
    y_undo_ = test::to_device<float>(std::vector<float>(kProductRows, NAN));
    APR_CUDA(api().cudaDeviceSynchronize());  // the uploads went through another stream
  }

  Products products() const { return {products_.as<float>(), undo_.as<float>(), problem_->stride}; }
  ProductColumns columns(int part) const {
    const int64_t first = part * problem_->n_cols;
    return {largest_.as<float>(), bias_.as<float>() + first, static_cast<int32_t>(first),
            static_cast<int32_t>(problem_->n_cols)};
  }
  F16Rows half_rows() const { return {y_half_.as<uint16_t>(), y_undo_.as<float>()}; }
  static bool can_keep(bool keep) { return !keep || GetParam() * 4 <= kLeastMostShared; }

  std::unique_ptr<KernelLibrary> kernels_;
  Stream stream_;
  std::unique_ptr<Problem> problem_;
  size_t n_elems_ = 0;
  DeviceBuffer products_, undo_, bias_, x_, norm_, largest_, y_half_, y_f32_, sum_, y_undo_;
};

TEST_P(GpuProductRows, ScalesAndUnscales) {
  const int64_t n_cols = problem_->n_cols;
  launch_scale_rows(*kernels_, stream_, {x_.as<float>(), half_rows(), static_cast<int32_t>(n_cols)},
                    kProductRows);
  check(read_rows(y_half_, y_undo_, n_cols), widened(problem_->x), n_cols, 0.0, true);

  UnscaleParams params{};
  params.products = products();
  for (int part = 0; part < 2; ++part) {
    params.columns[part] = columns(part);
    params.y[part] = (part == 0 ? y_f32_ : sum_).as<float>();
    params.y_stride[part] = n_cols;
  }
  launch_unscale_rows(*kernels_, stream_, params, 2, kProductRows);
  for (int part = 0; part < 2; ++part) {
    std::vector<double> wanted;
    for (int64_t row = 0; row < kProductRows; ++row) {
      for (int64_t col = 0; col < n_cols; ++col) {
        wanted.push_back(problem_->product(row, part * n_cols + col));
      }
    }
    // Powers of two are exact, the sum with the bias is rounded once.
    check(widened(test::to_host<float>(part == 0 ? y_f32_ : sum_)), wanted, n_cols, 0x1p-24, false);
  }
}

// With u = 2^-24: expf is within 4 u, the sum, the division and the product are rounded once each.
// Where expf(-gate) is infinite (gate < -88.7) the result is 0; in truth |silu| < 4e-37 there.
TEST_P(GpuProductRows, Activates) {
  constexpr double kRelative = 8 * 0x1p-24, kVanishing = 4e-37;
  const int64_t n_cols = problem_->n_cols;
  std::vector<double> wanted, vanishing;
  for (int64_t row = 0; row < kProductRows; ++row) {
    for (int64_t col = 0; col < n_cols; ++col) {
      const double gate = problem_->product(row, col), up = problem_->product(row, n_cols + col);
      wanted.push_back(gate / (1.0 + std::exp(-gate)) * up);
      vanishing.push_back(kVanishing * std::max(std::abs(up), 1.0));
    }
  }
  for (const bool half : {true, false}) {
    for (const bool keep : {true, false}) {
      SCOPED_TRACE(fmt::format("f16 {}, keep {}", half, keep));
      if (!can_keep(keep)) {
        continue;
      }
      launch_swiglu_rows(*kernels_, stream_,
                         {products(), columns(0), columns(1), half ? half_rows() : F16Rows{},
                          half ? nullptr : y_f32_.as<float>(), keep},
                         kProductRows);
      std::vector<double> found =
          half ? read_rows(y_half_, y_undo_, n_cols) : widened(test::to_host<float>(y_f32_));
      for (size_t at = 0; at < found.size(); ++at) {
        if (std::abs(wanted[at]) <= vanishing[at] && std::abs(found[at]) <= vanishing[at]) {
          found[at] = wanted[at];
        }
      }
      check(found, wanted, n_cols, kRelative, half);
    }
  }
}

// Bound of the norm: as in gpu_rms_norm_test.cpp, with up to kCols / threads squares a thread:
// their sum is off by that many + 14 units relatively, half of which and 9 more reach the result.
TEST_P(GpuProductRows, AddsAndNorms) {
  const int64_t n_cols = problem_->n_cols;
  const double depth = static_cast<double>(n_cols / std::min<int64_t>(n_cols, 512) + 1) * 4 + 14;
  const double relative = (depth / 2 + 9) * 0x1p-24 * 1.01;
  for (const bool add : {true, false}) {
    std::vector<double> sums, norms;
    for (int64_t row = 0; row < kProductRows; ++row) {
      double squares = 0.0;
      for (int64_t col = 0; col < n_cols; ++col) {
        const size_t at = static_cast<size_t>(row * n_cols + col);
        const float sum = add ? problem_->x[at] + static_cast<float>(problem_->product(row, col))
                              : problem_->x[at];
        sums.push_back(sum);
        squares += static_cast<double>(sum) * sum;
      }
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n_cols) + kRowsEps);
      for (int64_t col = 0; col < n_cols; ++col) {
        norms.push_back(sums[static_cast<size_t>(row * n_cols + col)] * scale *
                        problem_->norm[static_cast<size_t>(col)]);
      }
    }
    for (const bool half : {true, false}) {
      for (const bool keep : {true, false}) {
        for (const bool norm : {true, false}) {
          SCOPED_TRACE(fmt::format("add {}, f16 {}, keep {}, norm {}", add, half, keep, norm));
          if (!can_keep(keep) || (!norm && !add)) {
            continue;
          }
          SumNormRowsParams params{};
          params.x = x_.as<float>();
          params.n_cols = static_cast<int32_t>(n_cols);
          if (add) {
            params.products = products();
            params.columns = columns(0);
            params.sum = sum_.as<float>();
          }
          if (norm) {
            params.norm_weight = norm_.as<float>();
            params.y = half ? half_rows() : F16Rows{};
            params.y_f32 = half ? nullptr : y_f32_.as<float>();
            params.eps = kRowsEps;
          }
          params.keep = keep;
          launch_sum_norm_rows(*kernels_, stream_, params, kProductRows);
          if (add) {
            check(widened(test::to_host<float>(sum_)), sums, n_cols, 0.0, false);
          }
          if (norm) {
            check(
                half ? read_rows(y_half_, y_undo_, n_cols) : widened(test::to_host<float>(y_f32_)),
                norms, n_cols, relative, half);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, GpuProductRows,
                         ::testing::Values(1, 3, 4, 32, 65, 896, 1025, 4096, 12288, 17408, 25600,
                                           30001));

}  // namespace
}  // namespace apr::cuda
