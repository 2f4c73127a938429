// The block of sample_select.cu.
#pragma once

#include "sample_block.cuh"

namespace apr {

struct SelectShared {
  union {
    // The amounts of each bin, as sums of their 15-bit pieces: shared memory adds 32 bits at once.
    uint32_t pieces[3][kSampleBins];
    uint64_t bins[kSampleBins];  // afterwards, the sums over the grid
  };
  ItemSums sums;
};

// One digit of a selection: of the candidates whose key begins with the prefix, the digit at which
// the amounts of all that are better reach the goal. An amount is 1 (top-k) or the weight (top-p).
template <bool kWeighted, class Block>
APR_DEVICE void select_block(const Block& block, const SampleParams& p, SelectShared& s) {
  if (p.state->done != 0) {
    return;
  }
  constexpr int kPieceBits = 15;
  constexpr uint32_t kPieceMask = (1u << kPieceBits) - 1;
  const int bits = digit_bits(p.digit), shift = digit_shift(p.digit), n_bins = 1 << bits;
  const DrawWeights weights = draw_weights(p);
  const uint32_t floor_key = p.state->floor_key, prefix = p.digit == 0 ? 0 : p.state->prefix;
  const auto has_prefix = [&](uint32_t key) {
    return static_cast<uint32_t>(uint64_t{key} >> (shift + bits)) == prefix;
  };
  const auto bin_of = [&](uint32_t key) {
    return key >> shift & (static_cast<uint32_t>(n_bins) - 1);
  };
  const int first = block.idx() * p.chunk;
  const int end = p.n_tokens - first < p.chunk ? p.n_tokens : first + p.chunk;
  block.each([&](int thread) {
    for (int bin = thread; bin < n_bins; bin += kSampleThreads) {
      s.pieces[0][bin] = s.pieces[1][bin] = s.pieces[2][bin] = 0;
    }
  });
  block.each([&](int thread) {
    for (int id = first + thread; id < end; id += kSampleThreads) {
      const float logit = p.logits[id];
      const uint32_t key = order_key(logit);
      if (key <= floor_key || !has_prefix(key)) {
        continue;
      }
      const uint32_t bin = bin_of(key);
      const uint64_t weight = kWeighted ? weights.plain(logit) : 1;
      if constexpr (!kWeighted) {
        block.add(&s.pieces[0][bin], 1u);
      } else if (weight != 0) {
        block.add(&s.pieces[0][bin], static_cast<uint32_t>(weight) & kPieceMask);
        block.add(&s.pieces[1][bin], static_cast<uint32_t>(weight >> kPieceBits) & kPieceMask);
        block.add(&s.pieces[2][bin], static_cast<uint32_t>(weight >> (2 * kPieceBits)));
      }
    }
  });
  block.each([&](int thread) {
    for (int bin = thread; bin < n_bins; bin += kSampleThreads) {
      const uint64_t amount = s.pieces[0][bin] + (uint64_t{s.pieces[1][bin]} << kPieceBits) +
                              (uint64_t{s.pieces[2][bin]} << (2 * kPieceBits));
      if (amount != 0) {
        block.add(&p.histogram[bin], amount);
      }
    }
  });
  if (!block.is_last(&p.state->arrived)) {
    return;
  }
  block.each([&](int thread) {
    for (int bin = thread; bin < n_bins; bin += kSampleThreads) {
      uint64_t amount = p.histogram[bin];
      p.histogram[bin] = 0;
      // Of those at the floor, the blocks counted none: only some of them may stay.
      if (p.state->n_ties != 0 && has_prefix(floor_key) &&
          bin_of(floor_key) == static_cast<uint32_t>(bin)) {
        amount += p.state->n_ties * (kWeighted ? weights.plain(logit_of_key(floor_key)) : 1);
      }
      s.bins[bin] = amount;
    }
  });
  // Items are four bins each, the best first.
  constexpr int kItemBins = kSampleBins / kSampleThreads;
  block.each([&](int thread) {
    uint64_t sum = 0;
    for (int idx = 0; idx < kItemBins; ++idx) {
      const int bin = n_bins - 1 - (kItemBins * thread + idx);
      sum += bin >= 0 ? s.bins[bin] : 0;
    }
    s.sums.items[thread] = sum;
  });
  sum_groups(block, s.sums);
  block.each([&](int thread) {
    if (thread != 0) {
      return;
    }
    SamplerState& state = *p.state;
    if (p.digit == 0) {
      state.before = 0;
      state.goal = kWeighted ? top_p_goal(p.settings->top_p, total_of(s.sums))
                             : static_cast<uint64_t>(p.settings->top_k);
    }
    uint64_t left = state.goal - 1 - state.before;
    int bin = n_bins - 1 - kItemBins * locate(s.sums, left);
    while (bin > 0 && s.bins[bin] <= left) {
      left -= s.bins[bin--];
    }
    const uint32_t key = prefix << bits | static_cast<uint32_t>(bin);
    state.before = state.goal - 1 - left;
    state.prefix = key;
    if (p.digit == kSampleDigits - 1) {
      const uint64_t each = kWeighted ? weights.plain(logit_of_key(key)) : 1;
      state.floor_key = key;
      state.n_ties = static_cast<uint32_t>(left / each) + 1;
    }
  });
}

}  // namespace apr
