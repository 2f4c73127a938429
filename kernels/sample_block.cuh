// The blocks of the sampling kernels: plain phases with a barrier after each, so that they also run
// on the host, where tests compare them with the Sampler. A Block gives
//   idx(), n_blocks()     of the grid
//   each(f)               f(thread) for every thread of kSampleThreads, then a barrier
//   add(to, amount)       atomically
//   is_last(arrived)      whether every other block got here; resets the counter where it is
//
// Candidates are ordered by logit, of ties the lowest id first. Top-k and top-p keep a prefix of
// that order, so a floor (a logit, and how many of those equal to it) describes what they leave.
// The floor's key is found digit by digit from histograms; ties are dealt out by id at the draw.
#pragma once

#include "sample_math.cuh"
#include "sample_params.h"

namespace apr {

constexpr int kGroupItems = 16, kGroups = kSampleThreads / kGroupItems;
constexpr uint32_t kNoId = 0xffffffffu;

APR_DEVICE constexpr int digit_bits(int digit) {
  return digit == 2 ? 10 : 11;
}
APR_DEVICE constexpr int digit_shift(int digit) {
  return digit == 0 ? 21 : digit == 1 ? 10 : 0;
}

// Orders as the logits do, equal zeros included; 0 is no logit's.
APR_DEVICE uint32_t order_key(float logit) {
  const uint32_t bits = bits_of_f32(logit);
  if (bits == 0x80000000u) {
    return 0x80000000u;
  }
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

APR_DEVICE float logit_of_key(uint32_t key) {
  return f32_of_bits(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

APR_DEVICE DrawWeights draw_weights(const SampleParams& p) {
  return {p.settings->temperature, p.settings->min_p, p.state->best, weight_bits(p.n_tokens)};
}

// Prefix sums over the items of a block, in two levels.
struct ItemSums {
  uint64_t items[kSampleThreads];
  uint64_t groups[kGroups];
};

// groups = the sums of kGroupItems neighbours. Lanes start at different items: of different banks.
template <class Block>
APR_DEVICE void sum_groups(const Block& block, ItemSums& s) {
  block.each([&](int thread) {
    if (thread < kGroups) {
      uint64_t sum = 0;
      for (int idx = 0; idx < kGroupItems; ++idx) {
        sum += s.items[thread * kGroupItems + (idx + thread) % kGroupItems];
      }
      s.groups[thread] = sum;
    }
  });
}

APR_DEVICE uint64_t total_of(const ItemSums& s) {
  uint64_t total = 0;
  for (int group = 0; group < kGroups; ++group) {
    total += s.groups[group];
  }
  return total;
}

// The first item at which the sum of all up to it exceeds `left`, which must be below the total;
// takes what is before the item off `left`. The loops run to their ends: loads do not wait for
// comparisons.
APR_DEVICE int locate(const ItemSums& s, uint64_t& left) {
  const auto skip = [&left](const uint64_t* sums, int n_sums) {
    int n_skipped = 0;
    bool found = false;
    for (int idx = 0; idx < n_sums; ++idx) {
      found = found || left < sums[idx];
      left -= found ? 0 : sums[idx];
      n_skipped += found ? 0 : 1;
    }
    return n_skipped;
  };
  const int group = skip(s.groups, kGroups);
  return group * kGroupItems + skip(s.items + group * kGroupItems, kGroupItems);
}

// The end of a step, for one thread: tells the host, and prepares the next step unless this was the
// last.
APR_DEVICE void accept_token(const SampleParams& p, int32_t token) {
  const SamplerSettings& settings = *p.settings;
  SamplerState& state = *p.state;
  if (settings.has_penalties != 0) {
    // The window moves on: the new token enters, the one that is now too old leaves.
    p.history[state.n_history] = token;
    p.counts[token] += 1;
    if (settings.repeat_last_n > 0 && state.n_history >= settings.repeat_last_n) {
      const int32_t old = p.history[state.n_history - settings.repeat_last_n];
      if (old >= 0 && old < p.n_tokens) {
        p.counts[old] -= 1;
      }
    }
  }
  state.n_history += 1;
  state.n_left -= 1;
  bool is_stop = false;
  for (int idx = 0; idx < settings.n_stop_ids; ++idx) {
    is_stop = is_stop || settings.stop_ids[idx] == token;
  }
  p.outcomes[state.step % kOutcomeSlots] = {token, SampleFault::kNone};
  state.step += 1;
  if (is_stop || state.n_left <= 0) {
    // Id and position stay: the step in flight writes the cache row of this one again, with the
    // same values, and its sampler nothing at all.
    state.done = 1;
    return;
  }
  *p.ids = token;
  p.step->position += 1;
}

APR_DEVICE void report_fault(const SampleParams& p, SampleFault fault, uint32_t id) {
  p.outcomes[p.state->step % kOutcomeSlots] = {static_cast<int32_t>(id), fault};
  p.state->done = 1;
}

}  // namespace apr
