// The block of sample_draw.cu.
#pragma once

#include "sample_block.cuh"

namespace apr {

struct DrawShared {
  ItemSums sums;
  uint32_t ties[kSampleThreads];         // of each item
  uint32_t ties_before[kSampleThreads];  // of the items before it
  uint32_t group_ties[kGroups];          // before the group
  uint32_t all_ties;
  // What is left of the draw and of the ties at the item that was found.
  uint64_t left;
  uint32_t ties_left;
  int chosen;  // -1: none yet
};

// Adds to the items the weights of those of their ties that are among the first n_ties, sums the
// groups.
template <class Block>
APR_DEVICE void deal_ties(const Block& block, DrawShared& s, uint32_t n_ties, uint64_t weight) {
  block.each([&](int thread) {
    if (thread < kGroups) {
      uint32_t sum = 0;
      for (int idx = 0; idx < kGroupItems; ++idx) {
        sum += s.ties[thread * kGroupItems + (idx + thread) % kGroupItems];
      }
      s.group_ties[thread] = sum;
    }
  });
  block.each([&](int thread) {
    if (thread == 0) {
      uint32_t sum = 0;
      for (int group = 0; group < kGroups; ++group) {
        const uint32_t ties = s.group_ties[group];
        s.group_ties[group] = sum;
        sum += ties;
      }
      s.all_ties = sum;
    }
  });
  block.each([&](int thread) {
    uint32_t before = s.group_ties[thread / kGroupItems];
    for (int item = thread / kGroupItems * kGroupItems; item < thread; ++item) {
      before += s.ties[item];
    }
    s.ties_before[thread] = before;
    const uint32_t room = n_ties > before ? n_ties - before : 0;
    s.sums.items[thread] += (s.ties[thread] < room ? s.ties[thread] : room) * weight;
  });
  sum_groups(block, s.sums);
}

// The draw: candidates by ascending id, the first at which the sum of weights exceeds the draw.
template <class Block>
APR_DEVICE void draw_block(const Block& block, const SampleParams& p, DrawShared& s) {
  if (p.state->done != 0) {
    return;
  }
  const DrawWeights weights = draw_weights(p);
  const uint32_t floor_key = p.state->floor_key;
  const auto first_of = [&](int of_block) { return of_block * p.chunk; };
  const auto end_of = [&](int of_block) {
    return p.n_tokens - first_of(of_block) < p.chunk ? p.n_tokens : first_of(of_block) + p.chunk;
  };
  const auto take = [&](int thread, int id) {
    const float logit = p.logits[id];
    const uint32_t key = order_key(logit);
    if (key > floor_key) {
      s.sums.items[thread] += weights.drawn(logit);
    } else if (key == floor_key) {
      s.ties[thread] += 1;
    }
  };
  block.each([&](int thread) {
    s.sums.items[thread] = 0;
    s.ties[thread] = 0;
    for (int id = first_of(block.idx()) + thread; id < end_of(block.idx()); id += kSampleThreads) {
      take(thread, id);
    }
  });
  deal_ties(block, s, 0, 0);  // for the sums alone
  block.each([&](int thread) {
    if (thread == 0) {
      p.partials[block.idx()].sum = total_of(s.sums);
      p.partials[block.idx()].n_ties = s.all_ties;
    }
  });
  if (!block.is_last(&p.state->arrived)) {
    return;
  }
  const uint64_t tie_weight = p.state->n_ties != 0 ? weights.drawn(logit_of_key(floor_key)) : 0;
  block.each([&](int thread) {
    const bool has_block = thread < block.n_blocks();
    s.sums.items[thread] = has_block ? p.partials[thread].sum : 0;
    s.ties[thread] = has_block ? p.partials[thread].n_ties : 0;
  });
  deal_ties(block, s, p.state->n_ties, tie_weight);
  block.each([&](int thread) {
    if (thread == 0) {
      s.left = scale_to(philox_u64(p.settings->seed, p.state->step), total_of(s.sums));
      s.chosen = locate(s.sums, s.left);
      const uint32_t before = s.ties_before[s.chosen];
      s.ties_left = p.state->n_ties > before ? p.state->n_ties - before : 0;
    }
  });
  // The same again among the ids of that block.
  const int chosen_block = s.chosen, end = end_of(chosen_block);
  block.each([&](int thread) {
    if (thread == 0) {
      s.chosen = -1;
    }
  });
  for (int tile = first_of(chosen_block); tile < end && s.chosen < 0; tile += kSampleThreads) {
    block.each([&](int thread) {
      s.sums.items[thread] = 0;
      s.ties[thread] = 0;
      if (tile + thread < end) {
        take(thread, tile + thread);
      }
    });
    deal_ties(block, s, s.ties_left, tie_weight);
    block.each([&](int thread) {
      if (thread != 0) {
        return;
      }
      const uint64_t total = total_of(s.sums);
      if (s.left < total) {
        s.chosen = tile + locate(s.sums, s.left);
      } else {
        s.left -= total;
        s.ties_left -= s.ties_left < s.all_ties ? s.ties_left : s.all_ties;
      }
    });
  }
  block.each([&](int thread) {
    if (thread == 0) {
      accept_token(p, s.chosen);
    }
  });
}

}  // namespace apr
