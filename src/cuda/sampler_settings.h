// What the sampling kernels are told of an answer, and how a vocabulary is cut into blocks.
#pragma once

#include <algorithm>
#include <span>

#include "apr/sampling.h"
#include "apr/tokenizer.h"
#include "sample_params.h"

namespace apr::cuda {

// `params` in range. Stop ids past the first kMostStopIds are left out: the caller tests every
// token anyway, the kernels only so as not to go on in vain.
inline SamplerSettings sampler_settings(const SamplingParams& params,
                                        std::span<const TokenId> stop_ids) {
  SamplerSettings settings{};
  settings.temperature = params.temperature;
  settings.top_p = params.top_p;
  settings.min_p = params.min_p;
  settings.repeat_penalty = params.repeat_penalty;
  settings.presence_penalty = params.presence_penalty;
  settings.frequency_penalty = params.frequency_penalty;
  settings.seed = params.seed;
  settings.repeat_last_n = params.repeat_last_n;
  settings.top_k = static_cast<int32_t>(params.top_k);
  settings.has_penalties = params.has_penalties() ? 1 : 0;
  const auto first = stop_ids.first(std::min(stop_ids.size(), size_t{kMostStopIds}));
  settings.n_stop_ids = static_cast<int32_t>(first.size());
  std::copy(first.begin(), first.end(), settings.stop_ids);
  return settings;
}

// The end of `history` that the penalties look at.
inline std::span<const TokenId> penalty_window(const SamplingParams& params,
                                               std::span<const TokenId> history) {
  return params.repeat_last_n < 0
             ? history
             : history.last(std::min(history.size(), static_cast<size_t>(params.repeat_last_n)));
}

// Ids of a block: three a thread, so that an H200's 132 multiprocessors take 152k ids at once; more
// where that makes too many blocks.
inline int32_t sample_chunk(int64_t n_tokens) {
  constexpr int64_t kLeast = 3 * kSampleThreads;
  return static_cast<int32_t>(
      std::max(kLeast, (n_tokens + kMostSampleBlocks - 1) / kMostSampleBlocks));
}

// As the device holds an answer, in one piece.
struct SamplerAnswer {
  SamplerSettings settings;
  SamplerState state;
};

// Buffers of a DeviceSampler, in bytes. n_tokens: ids that may be chosen.
struct SamplerSizes {
  uint64_t answer = sizeof(SamplerAnswer), history = 0, counts = 0;
  uint64_t partials = kMostSampleBlocks * sizeof(SamplePartial);
  uint64_t histogram = kSampleBins * sizeof(uint64_t);
};
inline SamplerSizes sampler_sizes(int64_t n_tokens, int64_t context) {
  SamplerSizes sizes;
  sizes.history = static_cast<uint64_t>(2 * context) * sizeof(int32_t);
  sizes.counts = static_cast<uint64_t>(n_tokens) * sizeof(int32_t);
  return sizes;
}

}  // namespace apr::cuda
