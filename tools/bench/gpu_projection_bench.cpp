// Speed of prefill products of few tokens: matvec_rows and small_gemm on the file's blocks beside
// cuBLAS on kept 16-bit weights.
//
//   cmake -G Ninja -B build -DAPR_BENCH=ON && ninja -C build gpu_projection_bench
//   build/tools/bench/gpu_projection_bench [TYPE...]
//
// Each time is of one product in a graph of many over copies of the matrix in turn, which together
// exceed the L2 cache. TB/s count the blocks once; "cuBLAS" the 16-bit weights.
#include <fmt/format.h>

#include <random>
#include <vector>

#include "cuda/error.h"
#include "cuda/few_token_products.h"
#include "cuda/launch_matvec.h"

namespace apr::cuda {
namespace {

struct Shape {
  const char* what;
  int64_t n_rows, n_cols;
};

constexpr Shape kShapes[] = {
    {"8b q", 4096, 4096},      {"8b k or v", 1024, 4096},  {"8b gate + up", 24576, 4096},
    {"8b down", 4096, 12288},  {"0.6b q + k", 3072, 1024}, {"0.6b gate + up", 6144, 1024},
    {"0.6b down", 1024, 3072},
};
constexpr int64_t kMostTokens = 128, kMostSplits = 16;
constexpr int64_t kRotatedBytes = int64_t{160} << 20;  // more than the L2 cache

DeviceBuffer filled(size_t n_bytes, int byte) {
  DeviceBuffer buffer(n_bytes, "a bench");
  APR_CUDA(api().cudaMemset(buffer.data(), byte, n_bytes));
  return buffer;
}

// Microseconds of one call: the least of some graphs of n_runs.
template <class Run>
double time_us(const Stream& stream, int n_runs, const Run& run) {
  const Graph graph = capture_graph(stream, [&] {
    for (int idx = 0; idx < n_runs; ++idx) {
      run(static_cast<size_t>(idx));
    }
  });
  const GraphExec exec = instantiate(graph);
  const Event begin = create_timer(), end = create_timer();
  double best_ms = 1e30;
  for (int repeat = 0; repeat < 8; ++repeat) {
    APR_CUDA(api().cudaEventRecord(begin.get(), stream.get()));
    APR_CUDA(api().cudaGraphLaunch(exec.get(), stream.get()));
    APR_CUDA(api().cudaEventRecord(end.get(), stream.get()));
    APR_CUDA(api().cudaStreamSynchronize(stream.get()));
    best_ms = std::min(best_ms, static_cast<double>(elapsed_ms(begin, end)));
  }
  return best_ms * 1e3 / n_runs;
}

void run_type(const KernelLibrary& kernels, const DeviceFacts& device, const QuantType& type) {
  std::mt19937 random(1);
  const Stream stream = create_stream();
  const CublasHandle cublas = create_cublas(stream);
  const DeviceBuffer cublas_workspace = filled(kCublasBytes, 0);
  APR_CUDA(api().cublasSetWorkspace(cublas.get(), cublas_workspace.data(), kCublasBytes));
  const int64_t shared_bytes =
      static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes;
  for (const Shape& shape : kShapes) {
    const int64_t n_bytes = shape.n_rows * type.row_bytes(shape.n_cols);
    const int64_t n_elems = shape.n_rows * shape.n_cols;
    std::vector<std::byte> raw(static_cast<size_t>(n_bytes));
    for (std::byte& byte : raw) {
      byte = static_cast<std::byte>(random() % 256 & 0x3b);  // f16 scales stay finite
    }
    Weight weight;
    weight.type = &type;
    weight.n_rows = shape.n_rows;
    weight.n_cols = shape.n_cols;
    weight.shape = {shape.n_rows, shape.n_cols};
    weight.row_bytes = type.row_bytes(shape.n_cols);
    weight.data = raw.data();
    weight.size_bytes = n_bytes;
    const std::vector<Weight> weights(static_cast<size_t>(1 + kRotatedBytes / n_bytes), weight);
    const DeviceWeights on_device(weights);
    FewTokenProducts small(kernels, stream, device, on_device, FewTokensUse::kWherePossible);
    const int64_t n_halves = 1 + kRotatedBytes / (2 * n_elems);
    const DeviceBuffer halves = filled(static_cast<size_t>(n_halves * n_elems * 2), 0x29);
    const DeviceBuffer x = filled(static_cast<size_t>(kMostTokens * shape.n_cols * 2), 0x29);
    const DeviceBuffer y =
        filled(static_cast<size_t>(kMostSplits * kMostTokens * shape.n_rows * 4), 0);
    const DeviceBuffer largest = filled(4, 0x3c);
    ProductColumns columns{largest.as<float>(), nullptr, 0, static_cast<int32_t>(shape.n_rows)};
    APR_CUDA(api().cudaDeviceSynchronize());
    for (const int64_t n_tokens : {1, 2, 4, 8, 16, 24, 32, 33, 64, 96, 128}) {
      const double small_us = time_us(stream, 24, [&](size_t idx) {
        const Weight* one = &weights[idx % weights.size()];
        const ProductsTo to{y.as<float>(), shape.n_rows, n_tokens * shape.n_rows, kMostSplits};
        small.multiply({&one, 1}, HalfStore::kCached, x.as<uint16_t>(), n_tokens, to,
                       {&columns, 1});
      });
      const float alpha = 1.0F, beta = 0.0F;
      const double cublas_us = time_us(stream, 24, [&](size_t idx) {
        const uint16_t* w = halves.as<uint16_t>() + static_cast<int64_t>(idx) % n_halves * n_elems;
        APR_CUDA(api().cublasGemmEx_64(
            cublas.get(), CUBLAS_OP_T, CUBLAS_OP_N, shape.n_rows, n_tokens, shape.n_cols, &alpha, w,
            CUDA_R_16F, shape.n_cols, x.data(), CUDA_R_16F, shape.n_cols, &beta, y.data(),
            CUDA_R_32F, shape.n_rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
      });
      const TierCase of{{&type,
                         {&shape.n_rows, 1},
                         shape.n_cols,
                         n_tokens,
                         device.n_sm,
                         shared_bytes,
                         kMostSplits}};
      const TierChoice choice = choose_prefill_tier(of);
      const char* chosen = choice.tier == PrefillTier::kMatvec  ? "matvec_rows"
                           : choice.tier == PrefillTier::kFused ? "small_gemm"
                                                                : "cuBLAS";
      fmt::print(
          "{:5} {:14} {:4} tokens  {:7.2f} us {:5.2f} TB/s {:6.1f} TFLOP/s  cuBLAS {:7.2f} us "
          "{:5.2f} TB/s  {:5.2f} times  ({} splits; chosen: {})\n",
          type.name, shape.what, n_tokens, small_us, static_cast<double>(n_bytes) / small_us * 1e-6,
          2e-6 * static_cast<double>(n_elems * n_tokens) / small_us, cublas_us,
          static_cast<double>(n_elems * 2) / cublas_us * 1e-6, cublas_us / small_us,
          columns.n_splits, chosen);
    }
  }
}

void run_all(std::vector<std::string> names) {
  if (names.empty()) {
    names = {"Q4_K", "Q6_K"};
  }
  const DeviceFacts device = use_device(0);
  fmt::print("{} ({})\n", device.name, device.architecture);
  for (const std::string& name : names) {
    const QuantType* type = find_quant_type(name);
    if (type == nullptr || type->block_elems == 1) {
      throw std::runtime_error(name + " is no block type");
    }
    std::vector<KernelRow> rows;
    for (const KernelRow& row : kernel_table()) {
      if ((row.name.starts_with("small_gemm.") || row.name.starts_with("matvec_rows.")) &&
          row.quant_type == type->name && runs_on(row, device.architecture)) {
        rows.push_back(row);
      }
    }
    KernelCompiler compiler;
    const KernelLibrary kernels(
        compiler, rows, device.architecture,
        static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes);
    run_type(kernels, device, *type);
  }
}

}  // namespace
}  // namespace apr::cuda

int main(int argc, char** argv) {
  try {
    apr::cuda::run_all({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
