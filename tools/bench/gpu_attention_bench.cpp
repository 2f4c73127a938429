// Speed of attention on the GPU: a prefill's TFLOP/s and a decode step's microseconds and TB/s.
//
//   cmake -G Ninja -B build -DAPR_BENCH=ON && ninja -C build gpu_attention_bench
//   build/tools/bench/gpu_attention_bench
//
// A prefill counts 4 * head_dim operations for each head and each key that a token sees, and times
// norm, rotation and append with it. A decode step is one of 24 in a graph, over caches in turn
// that together exceed the L2 cache where the depth is large.
#include <fmt/format.h>

#include <vector>

#include "cuda/attention.h"
#include "cuda/error.h"

namespace apr::cuda {
namespace {

struct Shape {
  const char* model;
  int64_t n_heads, n_kv_heads, head_dim;
};

constexpr Shape kShapes[] = {
    {"qwen3-8b", 32, 8, 128},    {"qwen3-0.6b", 16, 8, 128}, {"qwen2.5-1.5b", 12, 2, 128},
    {"qwen2.5-0.5b", 14, 2, 64}, {"qwen3.5-9b", 16, 4, 256}, {"qwen3.5-0.8b", 8, 2, 256},
};

ModelDesc desc_of(const Shape& shape) {
  ModelDesc desc;
  desc.attention = {shape.n_heads, shape.n_kv_heads, shape.head_dim, false, true, false};
  desc.rope.n_rot = shape.head_dim;
  desc.rope.inv_freq.assign(static_cast<size_t>(shape.head_dim / 2), 0.01F);
  return desc;
}

class Bench {
 public:
  Bench(const KernelLibrary& kernels, const DeviceFacts& device, const Shape& shape,
        int64_t n_tokens, int64_t position, size_t n_caches)
      : desc_(desc_of(shape)),
        n_tokens_(n_tokens),
        position_(position),
        stream_(create_stream()),
        step_(sizeof(StepState), "a step"),
        q_(floats(n_tokens * desc_.attention.q_dim())),
        k_(floats(n_tokens * desc_.attention.kv_dim())),
        v_(floats(n_tokens * desc_.attention.kv_dim())),
        norm_(floats(shape.head_dim)),
        y_(floats(n_tokens * desc_.attention.q_dim())) {
    const StepState state{static_cast<int32_t>(position), static_cast<int32_t>(n_tokens)};
    APR_CUDA(api().cudaMemcpy(step_.data(), &state, sizeof state, cudaMemcpyHostToDevice));
    const int64_t n_keys = position + n_tokens;
    for (size_t cache = 0; cache < 2 * n_caches; ++cache) {
      caches_.emplace_back(static_cast<size_t>(n_keys * desc_.attention.kv_dim() * 2), "a cache");
      APR_CUDA(api().cudaMemset(caches_.back().data(), 0, caches_.back().size_bytes()));
    }
    attention_ = std::make_unique<Attention>(kernels, stream_, device, desc_, step_.as<StepState>(),
                                             AttentionOptions{false, n_tokens, n_keys});
    APR_CUDA(api().cudaDeviceSynchronize());
  }

  void run(size_t cache) {
    AttentionCall call;
    const AttentionDesc& desc = desc_.attention;
    call.q = {q_.as<float>(), desc.q_dim(), static_cast<int32_t>(desc.head_dim)};
    call.k = k_.as<float>();
    call.v = v_.as<float>();
    call.q_norm = call.k_norm = norm_.as<float>();
    call.eps = 1e-6F;
    call.scale = 0.1F;
    cache = cache % (caches_.size() / 2) * 2;
    call.cache = {caches_[cache].data(), caches_[cache + 1].data()};
    call.y = y_.as<float>();
    call.n_tokens = n_tokens_;
    call.position = position_;
    attention_->run(call);
  }

  // Microseconds of one run: the least of `n_repeats` graphs of n_runs.
  double time_us(int n_runs, int n_repeats) {
    const Graph graph = capture_graph(stream_, [&] {
      for (int run_idx = 0; run_idx < n_runs; ++run_idx) {
        run(static_cast<size_t>(run_idx));
      }
    });
    const GraphExec exec = instantiate(graph);
    const Event begin = create_timer(), end = create_timer();
    double best_ms = 1e30;
    for (int repeat = 0; repeat < n_repeats; ++repeat) {
      APR_CUDA(api().cudaEventRecord(begin.get(), stream_.get()));
      APR_CUDA(api().cudaGraphLaunch(exec.get(), stream_.get()));
      APR_CUDA(api().cudaEventRecord(end.get(), stream_.get()));
      APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
      best_ms = std::min(best_ms, static_cast<double>(elapsed_ms(begin, end)));
    }
    return best_ms * 1e3 / n_runs;
  }

 private:
  static DeviceBuffer floats(int64_t n) {
    DeviceBuffer buffer(static_cast<size_t>(n * 4), "a bench");
    APR_CUDA(api().cudaMemset(buffer.data(), 0x3c, buffer.size_bytes()));  // 0.0115 each
    return buffer;
  }

  ModelDesc desc_;
  int64_t n_tokens_, position_;
  Stream stream_;
  DeviceBuffer step_, q_, k_, v_, norm_, y_;
  std::vector<DeviceBuffer> caches_;
  std::unique_ptr<Attention> attention_;
};

void run_all() {
  const DeviceFacts device = use_device(0);
  std::vector<KernelRow> rows;
  for (const KernelRow& row : kernel_table()) {
    const bool is_ours =
        (row.name.starts_with("attention_") && !row.name.starts_with("attention_decode.")) ||
        row.name == "qk_rope_append.f16";
    if (is_ours && runs_on(row, device.architecture)) {
      rows.push_back(row);
    }
  }
  KernelCompiler compiler;
  const KernelLibrary kernels(compiler, rows, device.architecture);
  fmt::print("{} ({})\n", device.name, device.architecture);
  for (const Shape& shape : kShapes) {
    for (const int64_t n_tokens : {128, 512, 2048, 8192}) {
      const double n_seen = static_cast<double>(n_tokens) * static_cast<double>(n_tokens + 1) / 2;
      const double us = Bench(kernels, device, shape, n_tokens, 0, 1).time_us(4, 5);
      fmt::print("prefill  {:13} {:6} tokens  {:9.1f} us  {:6.1f} TFLOP/s\n", shape.model, n_tokens,
                 us,
                 4.0 * n_seen * static_cast<double>(shape.n_heads * shape.head_dim) / us * 1e-6);
    }
    for (const int64_t n_tokens : {1, 4}) {
      for (const int64_t depth : {10, 100, 250, 500, 2000, 8192, 32768}) {
        const double bytes = static_cast<double>(depth + 1) *
                             static_cast<double>(shape.n_kv_heads * shape.head_dim) * 4.0;
        const size_t n_caches = bytes > 4e6 ? 4 : 24;
        const double us = Bench(kernels, device, shape, n_tokens, depth, n_caches).time_us(24, 10);
        fmt::print("decode   {:13} {:6} deep, {} tokens  {:8.2f} us  {:6.2f} TB/s\n", shape.model,
                   depth, n_tokens, us, bytes / us * 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace apr::cuda

int main() {
  try {
    apr::cuda::run_all();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
