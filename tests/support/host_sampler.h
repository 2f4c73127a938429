// The sampling kernels run on the host: blocks in any order, the threads of a phase one after the
// other.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "cuda/sampler_settings.h"
#include "sample_best.cuh"
#include "sample_draw.cuh"
#include "sample_select.cuh"

namespace apr::test {

class HostBlock {
 public:
  HostBlock(int idx, int n_blocks) : idx_(idx), n_blocks_(n_blocks) {}
  int idx() const { return idx_; }
  int n_blocks() const { return n_blocks_; }
  template <class Phase>
  void each(const Phase& phase) const {
    for (int thread = 0; thread < kSampleThreads; ++thread) {
      phase(thread);
    }
  }
  template <class Amount>
  void add(Amount* to, Amount amount) const {
    *to += amount;
  }
  bool is_last(uint32_t* arrived) const {
    if (++*arrived < static_cast<uint32_t>(n_blocks_)) {
      return false;
    }
    *arrived = 0;
    return true;
  }

 private:
  int idx_, n_blocks_;
};

// The device memory of one answer, and the launches of a step.
class HostSampler {
 public:
  HostSampler(const SamplingParams& params, std::span<const TokenId> stop_ids, int32_t n_tokens,
              int32_t chunk, std::span<const TokenId> past, uint64_t step, int64_t max_tokens)
      : settings_(cuda::sampler_settings(params, stop_ids)),
        n_tokens_(n_tokens),
        chunk_(chunk),
        history_(past.begin(), past.end()),
        counts_(static_cast<size_t>(n_tokens)),
        partials_(kMostSampleBlocks),
        histogram_(kSampleBins) {
    state_.step = step;
    state_.n_history = static_cast<int64_t>(past.size());
    state_.n_left = max_tokens;
    history_.resize(past.size() + static_cast<size_t>(max_tokens));
    for (const TokenId id : cuda::penalty_window(params, past)) {
      if (id >= 0 && id < n_tokens) {
        ++counts_[static_cast<size_t>(id)];
      }
    }
  }

  // Chooses a token; `logits` are overwritten.
  SampleOutcome run(std::vector<float>& logits) {
    const uint64_t slot = state_.step % kOutcomeSlots;
    SampleParams p{};
    p.logits = logits.data();
    p.settings = &settings_;
    p.state = &state_;
    p.history = history_.data();
    p.counts = counts_.data();
    p.partials = partials_.data();
    p.histogram = histogram_.data();
    p.step = &next_;
    p.ids = &next_id_;
    p.outcomes = outcomes_;
    p.n_tokens = n_tokens_;
    p.chunk = chunk_;
    const SamplePasses passes = sample_passes(settings_, n_tokens_);
    launch<BestShared>([&](const HostBlock& block, BestShared& s) { best_block(block, p, s); });
    for (p.digit = 0; passes.top_k && p.digit < kSampleDigits; ++p.digit) {
      launch<SelectShared>(
          [&](const HostBlock& block, SelectShared& s) { select_block<false>(block, p, s); });
    }
    for (p.digit = 0; passes.top_p && p.digit < kSampleDigits; ++p.digit) {
      launch<SelectShared>(
          [&](const HostBlock& block, SelectShared& s) { select_block<true>(block, p, s); });
    }
    if (passes.draw) {
      launch<DrawShared>([&](const HostBlock& block, DrawShared& s) { draw_block(block, p, s); });
    }
    return outcomes_[slot];
  }

  const SamplerState& state() const { return state_; }
  const StepState& next() const { return next_; }
  int32_t next_id() const { return next_id_; }
  std::span<const int32_t> counts() const { return counts_; }
  bool is_clean() const {
    return state_.arrived == 0 && std::all_of(histogram_.begin(), histogram_.end(),
                                              [](uint64_t amount) { return amount == 0; });
  }

 private:
  template <class Shared, class Kernel>
  void launch(const Kernel& kernel) {
    const int n_blocks = (n_tokens_ + chunk_ - 1) / chunk_;
    std::vector<int> order(static_cast<size_t>(n_blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int idx : order) {
      Shared shared;
      std::memset(static_cast<void*>(&shared), 0xA5, sizeof shared);  // as it comes
      kernel(HostBlock(idx, n_blocks), shared);
    }
  }

  SamplerSettings settings_;
  int32_t n_tokens_, chunk_;
  SamplerState state_{};
  std::vector<int32_t> history_, counts_;
  std::vector<SamplePartial> partials_;
  std::vector<uint64_t> histogram_;
  StepState next_{7, 1};
  int32_t next_id_ = -1;
  SampleOutcome outcomes_[kOutcomeSlots] = {};
  std::mt19937 random_{1};
};

}  // namespace apr::test
