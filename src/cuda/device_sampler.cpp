#include "cuda/device_sampler.h"

#include <cstddef>
#include <vector>

#include "apr/error.h"
#include "cuda/error.h"
#include "cuda/launch.h"
#include "cuda/sampler_settings.h"

namespace apr::cuda {

DeviceSampler::DeviceSampler(const KernelLibrary& kernels, const Stream& stream, int64_t n_tokens,
                             int64_t context, StepState* step, int32_t* ids)
    : kernels_(kernels),
      stream_(stream),
      n_tokens_(n_tokens),
      context_(context),
      sizes_(sampler_sizes(n_tokens, context)),
      answer_(sizes_.answer, "sampler state"),
      history_(sizes_.history, "penalty history"),
      counts_(sizes_.counts, "penalty counts"),
      partials_(sizes_.partials, "sampler results"),
      histogram_(sizes_.histogram, "sampler histogram"),
      outcomes_(kOutcomeSlots * sizeof(SampleOutcome), "sampled tokens") {
  APR_CHECK(n_tokens >= 1 && n_tokens <= kMostSampleTokens, "a vocabulary that can be sampled");
  APR_CUDA(api().cudaMemsetAsync(histogram_.data(), 0, histogram_.size_bytes(), stream_.get()));
  params_.settings = &answer_.as<SamplerAnswer>()->settings;
  params_.state = &answer_.as<SamplerAnswer>()->state;
  params_.history = history_.as<int32_t>();
  params_.counts = counts_.as<int32_t>();
  params_.partials = partials_.as<SamplePartial>();
  params_.histogram = histogram_.as<uint64_t>();
  params_.step = step;
  params_.ids = ids;
  params_.outcomes = outcomes_.as<SampleOutcome>();  // one address for host and device
  params_.n_tokens = static_cast<int32_t>(n_tokens);
  params_.chunk = sample_chunk(n_tokens);
}

// Copies from pageable memory: each has left it when its call returns.
void DeviceSampler::begin(const DecodeOptions& options, int64_t n_left) {
  const auto n_history = static_cast<int64_t>(options.history.size());
  APR_CHECK(n_left >= 1 && n_history + n_left <= 2 * context_, "an answer fits its history");
  SamplerAnswer answer{};
  answer.settings = sampler_settings(options.sampling, options.stop_ids);
  answer.state.step = static_cast<uint64_t>(options.step);
  answer.state.n_history = n_history;
  answer.state.n_left = n_left;
  passes_ = sample_passes(answer.settings, params_.n_tokens);
  APR_CUDA(api().cudaMemcpyAsync(answer_.data(), &answer, sizeof answer, cudaMemcpyHostToDevice,
                                 stream_.get()));
  if (answer.settings.has_penalties == 0) {
    return;
  }
  std::vector<int32_t> counts(static_cast<size_t>(n_tokens_));  // [n_tokens]
  for (const TokenId id : penalty_window(options.sampling, options.history)) {
    if (id >= 0 && id < n_tokens_) {
      ++counts[static_cast<size_t>(id)];
    }
  }
  APR_CUDA(api().cudaMemcpyAsync(counts_.data(), counts.data(), counts_.size_bytes(),
                                 cudaMemcpyHostToDevice, stream_.get()));
  APR_CUDA(api().cudaMemcpyAsync(history_.data(), options.history.data(),
                                 options.history.size_bytes(), cudaMemcpyHostToDevice,
                                 stream_.get()));
}

int DeviceSampler::kind() const {
  return 1 + (passes_.top_k ? 2 : 0) + (passes_.top_p ? 4 : 0) + (passes_.draw ? 8 : 0);
}

void DeviceSampler::launch(float* logits) const {
  SampleParams params = params_;
  params.logits = logits;
  const LaunchConfig shape{
      .grid_x = static_cast<uint32_t>((params.n_tokens + params.chunk - 1) / params.chunk),
      .block_x = kSampleThreads,
      .overlap = true};
  const auto select = [&](const char* kernel) {
    for (params.digit = 0; params.digit < kSampleDigits; ++params.digit) {
      apr::cuda::launch(kernels_, kernel, shape, stream_, params);
    }
  };
  apr::cuda::launch(kernels_, "sample_best", shape, stream_, params);
  if (passes_.top_k) {
    select("sample_select.count");
  }
  if (passes_.top_p) {
    select("sample_select.weight");
  }
  if (passes_.draw) {
    apr::cuda::launch(kernels_, "sample_draw", shape, stream_, params);
  }
}

SampleOutcome DeviceSampler::outcome(int64_t step) const {
  // Written by the device: read as it is now.
  const auto* slot = reinterpret_cast<const volatile int32_t*>(outcomes_.as<SampleOutcome>() +
                                                               step % kOutcomeSlots);
  static_assert(sizeof(SampleOutcome) == 2 * sizeof(int32_t));
  return {slot[0], static_cast<SampleFault>(slot[1])};
}

}  // namespace apr::cuda
