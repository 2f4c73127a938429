// RMSNorm on the GPU against the reference kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "cpu/reference/ops.h"
#include "cuda/launch_rms_norm.h"
#include "support/gpu.h"

namespace apr::cuda {
namespace {

using test::kGuard;
constexpr float kNormEps = 1e-6F;

// Bound, with u = 2^-24 and d the longest chain of roundings in the f32 sum of squares (a square,
// two additions inside a vector, one addition for each of a thread's vectors, 5 + 5 in the block):
// all terms are positive, so the sum is off by at most d u relatively. Mean and eps add 2 u, the
// root halves all that and adds u, the reciprocal adds u, the reference's scale has u. Each side
// then rounds two products: 4 u. Together (d + 2) / 2 + 7, times 1.01 for the terms of second
// order.
double relative_bound(int64_t dim, const RmsNormLaunch& how) {
  const int64_t vector = how.kernel == "rms_norm.vec4" ? 4 : 1;
  const int64_t per_thread = (dim / vector + how.config.block_x - 1) / how.config.block_x;
  const double depth = static_cast<double>(3 + per_thread + 10);
  return ((depth + 2) / 2 + 7) * 0x1p-24 * 1.01;
}

struct NormCase {
  int64_t n_rows;
  int32_t dim;
  int offset_elems;  // of x and y from an aligned address
  bool in_place;
};

void check(const KernelLibrary& kernels, const NormCase& how) {
  SCOPED_TRACE(fmt::format("{} x {}, offset {}, in place {}, seed 1", how.n_rows, how.dim,
                           how.offset_elems, how.in_place));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  const size_t n_elems = static_cast<size_t>(how.n_rows * how.dim);
  const size_t offset = static_cast<size_t>(how.offset_elems);
  std::vector<float> weight(static_cast<size_t>(how.dim));
  std::vector<float> x(offset + n_elems + 4, kGuard);  // guards in front and behind
  for (float& value : weight) {
    value = normal(random);
  }
  for (size_t elem = 0; elem < n_elems; ++elem) {
    x[offset + elem] = normal(random);
  }
  std::vector<float> expected(n_elems);
  cpu::reference::rms_norm(
      {x.data() + offset, weight.data(), how.n_rows, how.dim, kNormEps, expected.data()});

  const DeviceBuffer weight_device = test::to_device<float>(weight);
  const DeviceBuffer x_device = test::to_device<float>(x);
  const std::vector<float> guards(x.size(), kGuard);
  const DeviceBuffer y_other = test::to_device<float>(guards);
  const DeviceBuffer& y_device = how.in_place ? x_device : y_other;
  const RmsNormParams params{x_device.as<float>() + offset, weight_device.as<float>(),
                             y_device.as<float>() + offset, how.dim, kNormEps};
  const Stream stream = create_stream();
  launch_rms_norm(kernels, stream, params, how.n_rows);
  APR_CUDA(api().cudaStreamSynchronize(stream.get()));

  const std::vector<float> y = test::to_host<float>(y_device);
  const double bound = relative_bound(how.dim, config_for(params, how.n_rows));
  for (size_t elem = 0; elem < y.size(); ++elem) {
    const bool inside = elem >= offset && elem < offset + n_elems;
    if (!inside) {
      ASSERT_EQ(y[elem], kGuard) << "element " << elem << " outside of the result was written";
      continue;
    }
    const double wanted = expected[elem - offset];
    ASSERT_LE(std::abs(y[elem] - wanted), bound * std::abs(wanted) + 1e-44)
        << "row " << (elem - offset) / static_cast<size_t>(how.dim) << ", element "
        << (elem - offset) % static_cast<size_t>(how.dim) << ": " << y[elem] << ", reference "
        << wanted;
  }
}

TEST(GpuRmsNorm, IsWithinItsBoundOfTheReference) {
  APR_NEED_GPU();
  KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  const std::array rows{kernel_row("rms_norm.vec4"), kernel_row("rms_norm.scalar")};
  const KernelLibrary kernels(compiler, rows, use_device(0).architecture);
  for (const int32_t dim : {1, 3, 4, 31, 32, 33, 127, 128, 132, 896, 1025, 4096, 5120, 20000}) {
    for (const int64_t n_rows : {1, 2, 97}) {
      check(kernels, {n_rows, dim, 0, false});
    }
    check(kernels, {3, dim, 1, false});
    check(kernels, {3, dim, 0, true});
  }
}

}  // namespace
}  // namespace apr::cuda
