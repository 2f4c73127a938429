// The sampler on the card against the Sampler: the same token, bit for bit.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace apr::cuda
