// The sampler on the card against the Sampler: the same token, bit for bit; and how long it takes.
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>

#include "apr/error.h"
#include "apr/generate.h"
#include "cuda/device_sampler.h"
#include "support/gpu.h"
#include "support/sampler_cases.h"

namespace apr::cuda {
namespace {

using test::SamplerCase;

constexpr int64_t kContext = 4096;

class GpuSampler : public ::testing::Test {
 protected:
  void SetUp() override {
    APR_NEED_GPU();
    KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
    const std::vector<KernelRow> rows{kernel_row("sample_best"), kernel_row("sample_select.count"),
                                      kernel_row("sample_select.weight"),
                                      kernel_row("sample_draw")};
    const DeviceFacts device = use_device(0);
    kernels_ = std::make_unique<KernelLibrary>(compiler, rows, device.architecture);
    stream_ = create_stream();
    step_ = DeviceBuffer(sizeof(StepState) + sizeof(int32_t), "a test");
  }

  // A sampler of `n_tokens`, whose next decode step is in step_.
  DeviceSampler sampler(size_t n_tokens, int64_t context = kContext) const {
    return DeviceSampler(*kernels_, stream_, static_cast<int64_t>(n_tokens), context,
                         step_.as<StepState>(),
                         reinterpret_cast<int32_t*>(step_.data() + sizeof(StepState)));
  }

  void upload(const DeviceBuffer& logits, const std::vector<float>& values) const {
    APR_CUDA(api().cudaMemcpyAsync(logits.data(), values.data(), values.size() * 4,
                                   cudaMemcpyHostToDevice, stream_.get()));
  }

  // Three steps of an answer by both; the logits of each step are rotated ones of the first.
  void expect_equal(const SamplerCase& c) const {
    const int64_t first_step = 5;
    Sampler reference(c.params, static_cast<int64_t>(c.logits.size()));
    DeviceSampler device = sampler(c.logits.size());
    DecodeOptions options;
    options.sampling = c.params;
    options.history = c.history;
    options.step = first_step;
    device.begin(options, 4);
    const StepState before{7, 1};
    APR_CUDA(api().cudaMemcpyAsync(step_.data(), &before, sizeof before, cudaMemcpyHostToDevice,
                                   stream_.get()));
    std::vector<TokenId> history = c.history;
    std::vector<float> logits = c.logits;
    const DeviceBuffer on_device(logits.size() * 4, "a test");
    for (int64_t step = first_step; step < first_step + 3; ++step) {
      const TokenId expected = reference.sample(logits, history, step);
      upload(on_device, logits);
      device.launch(on_device.as<float>());
      APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
      const SampleOutcome found = device.outcome(step);
      ASSERT_EQ(found.fault, SampleFault::kNone) << c.name;
      ASSERT_EQ(found.token, expected) << c.name << ", step " << step;
      history.push_back(expected);
      std::rotate(logits.begin(), logits.begin() + 1, logits.end());
    }
    const std::vector<int32_t> next = test::to_host<int32_t>(step_);
    ASSERT_EQ(next, (std::vector<int32_t>{10, 1, history.back()})) << c.name;
  }

  std::unique_ptr<KernelLibrary> kernels_;
  Stream stream_;
  DeviceBuffer step_;
};

TEST_F(GpuSampler, ChoosesAsTheSamplerOverAdversarialLogits) {
  for (const SamplerCase& c : test::adversarial_sampler_cases()) {
    expect_equal(c);
    if (HasFailure()) {
      return;
    }
  }
}

TEST_F(GpuSampler, ChoosesAsTheSamplerOverRandomLogits) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    expect_equal(test::random_sampler_case(seed, 5000));
    if (HasFailure()) {
      return;
    }
  }
}

TEST_F(GpuSampler, ChoosesAsTheSamplerOverAWholeVocabulary) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    expect_equal(test::random_sampler_case(seed, 151936, 151936));
    if (HasFailure()) {
      return;
    }
  }
}

TEST_F(GpuSampler, FindsWhatIsNotANumber) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 0.8}) {
    SamplingParams params;
    params.temperature = temperature;
    params.top_p = 0.9;
    struct Case {
      float value;
      SampleFault fault;
    };
    for (const Case& c : {Case{std::numeric_limits<float>::quiet_NaN(), SampleFault::kNan},
                          Case{kInf, SampleFault::kInf}}) {
      std::vector<float> logits(151936, 1.0F);
      logits[151935] = logits[77777] = c.value;
      DeviceSampler device = sampler(logits.size());
      DecodeOptions options;
      options.sampling = params;
      device.begin(options, 4);
      const DeviceBuffer on_device = test::to_device<float>(logits);
      device.launch(on_device.as<float>());
      APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
      EXPECT_EQ(device.outcome(0).fault, c.fault);
      EXPECT_EQ(device.outcome(0).token, 77777);
    }
    DeviceSampler device = sampler(3000);
    DecodeOptions options;
    options.sampling = params;
    device.begin(options, 4);
    const DeviceBuffer on_device = test::to_device<float>(std::vector<float>(3000, -kInf));
    device.launch(on_device.as<float>());
    APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
    EXPECT_EQ(device.outcome(0).fault, SampleFault::kNothingFinite);
  }
}

// After a stop id, replays leave id and position of the next step as they are.
TEST_F(GpuSampler, AfterAStopIdNothingIsWritten) {
  std::vector<float> logits(5000, 0.0F);
  logits[4321] = 1.0F;
  const std::vector<TokenId> stop_ids{3, 4321};
  DecodeOptions options;
  options.stop_ids = stop_ids;
  DeviceSampler device = sampler(logits.size());
  device.begin(options, 100);
  const DeviceBuffer on_device = test::to_device<float>(logits);
  const std::vector<int32_t> before{7, 1, 42};
  APR_CUDA(api().cudaMemcpyAsync(step_.data(), before.data(), 12, cudaMemcpyHostToDevice,
                                 stream_.get()));
  for (int replay = 0; replay < 3; ++replay) {
    device.launch(on_device.as<float>());
  }
  EXPECT_EQ(test::to_host<int32_t>(step_), before);
  EXPECT_EQ(device.outcome(0).token, 4321);
}

// Microseconds a step over a Qwen vocabulary, as one graph a step; the wanted ones are those of an
// H200, the limits leave room for slower cards.
TEST_F(GpuSampler, IsFast) {
  struct Case {
    const char* name;
    SamplingParams params;
    double wanted_us;
  };
  std::vector<Case> cases{{"greedy", {}, 5.0},
                          {"top-k 40, top-p 0.95", {}, 40.0},
                          {"top-p 0.95 of all", {}, 40.0},
                          {"all, penalties", {}, 40.0}};
  for (size_t idx = 1; idx < cases.size(); ++idx) {
    cases[idx].params.temperature = 0.8;
    cases[idx].params.top_k = idx == 1 ? 40 : 0;
    cases[idx].params.top_p = idx == 3 ? 1.0 : 0.95;
    cases[idx].params.presence_penalty = idx == 3 ? 0.5 : 0.0;
  }
  const SamplerCase base = test::random_sampler_case(3, 151936, 151936);
  for (const Case& c : cases) {
    constexpr int kSteps = 200;
    DeviceSampler device = sampler(base.logits.size());
    DecodeOptions options;
    options.sampling = c.params;
    options.history = base.history;
    device.begin(options, 4 * kSteps);
    const DeviceBuffer on_device = test::to_device<float>(base.logits);
    const GraphExec step =
        instantiate(capture_graph(stream_, [&] { device.launch(on_device.as<float>()); }));
    const Event begin = create_timer(), end = create_timer();
    for (int idx = -kSteps; idx < kSteps; ++idx) {
      if (idx == 0) {
        APR_CUDA(api().cudaEventRecord(begin.get(), stream_.get()));
      }
      APR_CUDA(api().cudaGraphLaunch(step.get(), stream_.get()));
    }
    APR_CUDA(api().cudaEventRecord(end.get(), stream_.get()));
    APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
    const double us = elapsed_ms(begin, end) * 1e3 / kSteps;
    std::printf("  %s: %.2f us a step, wanted %.0f\n", c.name, us, c.wanted_us);
    EXPECT_LT(us, 5 * c.wanted_us) << c.name;
  }
}

}  // namespace
}  // namespace apr::cuda
