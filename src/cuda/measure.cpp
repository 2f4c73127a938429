// What this device reaches: the bounds that `apr bench` compares with.
#include <algorithm>

#include "apr/cuda.h"
#include "cuda/device.h"
#include "cuda/error.h"
#include "cuda/handles.h"

namespace apr::cuda {
namespace {

// The best time of `n_runs` calls of `work` on `stream`, in seconds, after one to warm up.
template <class Work>
double best_seconds(const Stream& stream, int n_runs, const Work& work) {
  const Event begin = create_timer(), end = create_timer();
  work();
  float best_ms = 0.0F;
  for (int run = 0; run < n_runs; ++run) {
    APR_CUDA(api().cudaEventRecord(begin.get(), stream.get()));
    work();
    APR_CUDA(api().cudaEventRecord(end.get(), stream.get()));
    APR_CUDA(api().cudaEventSynchronize(end.get()));
    const float ms = elapsed_ms(begin, end);
    best_ms = run == 0 ? ms : std::min(best_ms, ms);
  }
  return static_cast<double>(best_ms) / 1000.0;
}

}  // namespace

DeviceSpeed measure_speed(int device) {
  constexpr size_t kCopyBytes = size_t{512} << 20;  // many times any cache
  constexpr int64_t kDim = 8192;                    // of the square matrices
  constexpr int kRuns = 8;
  use_device(device);
  const Stream stream = create_stream();
  DeviceSpeed speed;
  {
    const DeviceBuffer from(kCopyBytes, "bandwidth measurement");
    const DeviceBuffer to(kCopyBytes, "bandwidth measurement");
    APR_CUDA(api().cudaMemsetAsync(from.data(), 0, kCopyBytes, stream.get()));
    const double seconds = best_seconds(stream, kRuns, [&] {
      APR_CUDA(api().cudaMemcpyAsync(to.data(), from.data(), kCopyBytes, cudaMemcpyDeviceToDevice,
                                     stream.get()));
    });
    speed.bytes_per_s = 2.0 * static_cast<double>(kCopyBytes) / seconds;  // read and written
  }
  const CublasHandle cublas = create_cublas(stream);
  const DeviceBuffer a(kDim * kDim * 2, "product measurement");  // [kDim, kDim] f16
  const DeviceBuffer b(kDim * kDim * 2, "product measurement");
  const DeviceBuffer c(kDim * kDim * 4, "product measurement");  // [kDim, kDim] f32
  // 0x2929 is 0.0403 in f16: zeros would draw less power and so run faster than weights do.
  APR_CUDA(api().cudaMemsetAsync(a.data(), 0x29, a.size_bytes(), stream.get()));
  APR_CUDA(api().cudaMemsetAsync(b.data(), 0x29, b.size_bytes(), stream.get()));
  const float one = 1.0F, zero = 0.0F;
  const double seconds = best_seconds(stream, kRuns, [&] {
    APR_CUDA(api().cublasGemmEx_64(cublas.get(), CUBLAS_OP_T, CUBLAS_OP_N, kDim, kDim, kDim, &one,
                                   a.data(), CUDA_R_16F, kDim, b.data(), CUDA_R_16F, kDim, &zero,
                                   c.data(), CUDA_R_32F, kDim, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT));
  });
  constexpr double kFlops = 2.0 * kDim * kDim * kDim;
  speed.flops_per_s = kFlops / seconds;
  return speed;
}

}  // namespace apr::cuda
