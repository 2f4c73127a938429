// Speed of the sampler on the GPU: microseconds a step over a Qwen vocabulary, one graph a step.
//
//   cmake -G Ninja -B build -DAPR_BENCH=ON && ninja -C build gpu_sampler_bench
//   build/tools/bench/gpu_sampler_bench
#include <fmt/format.h>

#include <random>
#include <vector>

#include "cuda/device.h"
#include "cuda/device_sampler.h"
#include "cuda/error.h"

namespace apr::cuda {
namespace {

constexpr int64_t kVocabulary = 151936, kContext = 4096;
constexpr int kSteps = 200;

struct Way {
  const char* name;
  double temperature;
  int64_t top_k;
  double top_p, presence_penalty;
};

constexpr Way kWays[] = {
    {"greedy", 0.0, 0, 1.0, 0.0},
    {"top-k 40, top-p 0.95", 0.8, 40, 0.95, 0.0},
    {"top-p 0.95 of all", 0.8, 0, 0.95, 0.0},
    {"all, penalties", 0.8, 0, 1.0, 0.5},
};

void run() {
  const DeviceFacts device = use_device(0);
  fmt::print("{} ({})\n", device.name, device.architecture);
  KernelCompiler compiler;
  const std::vector<KernelRow> rows{kernel_row("sample_best"), kernel_row("sample_select.count"),
                                    kernel_row("sample_select.weight"), kernel_row("sample_draw")};
  const KernelLibrary kernels(compiler, rows, device.architecture);
  const Stream stream = create_stream();
  const DeviceBuffer step(sizeof(StepState) + sizeof(int32_t), "a bench");
  APR_CUDA(api().cudaMemset(step.data(), 0, step.size_bytes()));
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> values(static_cast<size_t>(kVocabulary));
  for (float& value : values) {
    value = normal(random);
  }
  const DeviceBuffer logits(values.size() * sizeof(float), "a bench");
  APR_CUDA(
      api().cudaMemcpy(logits.data(), values.data(), logits.size_bytes(), cudaMemcpyHostToDevice));
  for (const Way& way : kWays) {
    DeviceSampler sampler(kernels, stream, kVocabulary, kContext, step.as<StepState>(),
                          reinterpret_cast<int32_t*>(step.data() + sizeof(StepState)));
    DecodeOptions options;
    options.sampling.temperature = way.temperature;
    options.sampling.top_k = static_cast<decltype(options.sampling.top_k)>(way.top_k);
    options.sampling.top_p = way.top_p;
    options.sampling.presence_penalty = way.presence_penalty;
    const std::vector<TokenId> history = {1, 2, 3, 5, 8, 13, 21, 34};
    options.history = history;
    sampler.begin(options, 4 * kSteps);
    const GraphExec graph =
        instantiate(capture_graph(stream, [&] { sampler.launch(logits.as<float>()); }));
    const Event begin = create_timer(), end = create_timer();
    for (int idx = -kSteps; idx < kSteps; ++idx) {
      if (idx == 0) {
        APR_CUDA(api().cudaEventRecord(begin.get(), stream.get()));
      }
      APR_CUDA(api().cudaGraphLaunch(graph.get(), stream.get()));
    }
    APR_CUDA(api().cudaEventRecord(end.get(), stream.get()));
    APR_CUDA(api().cudaStreamSynchronize(stream.get()));
    fmt::print("{:22} {:7.2f} us a step\n", way.name, elapsed_ms(begin, end) * 1e3 / kSteps);
  }
}

}  // namespace
}  // namespace apr::cuda

int main() {
  try {
    apr::cuda::run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
