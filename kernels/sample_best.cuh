// The block of sample_best.cu.
#pragma once

#include "sample_block.cuh"

namespace apr {

struct BestShared {
  uint64_t best[kSampleThreads];
  uint32_t bad[kSampleThreads];
};

// Brings the largest and the first bad one to item 0.
template <class Block>
APR_DEVICE void reduce_best(const Block& block, BestShared& s) {
  for (int distance = kSampleThreads / 2; distance > 0; distance /= 2) {
    block.each([&](int thread) {
      if (thread < distance) {
        const uint64_t best = s.best[thread + distance];
        const uint32_t bad = s.bad[thread + distance];
        s.best[thread] = best > s.best[thread] ? best : s.best[thread];
        s.bad[thread] = bad < s.bad[thread] ? bad : s.bad[thread];
      }
    });
  }
}

// The first pass: finds what is not a number, applies the penalties, finds the largest logit (the
// lowest id of ties). Greedy sampling ends here.
template <class Block>
APR_DEVICE void best_block(const Block& block, const SampleParams& p, BestShared& s) {
  if (p.state->done != 0) {
    return;
  }
  const SamplerSettings& settings = *p.settings;
  const bool has_penalties = settings.has_penalties != 0;
  const int first = block.idx() * p.chunk;
  const int end = p.n_tokens - first < p.chunk ? p.n_tokens : first + p.chunk;
  block.each([&](int thread) {
    uint64_t best = 0;
    uint32_t bad = kNoId;
    for (int id = first + thread; id < end; id += kSampleThreads) {
      float logit = p.logits[id];
      if (!(logit <= kLargestF32)) {
        bad = static_cast<uint32_t>(id) < bad ? static_cast<uint32_t>(id) : bad;
        continue;
      }
      const int32_t n_seen = has_penalties ? p.counts[id] : 0;
      if (n_seen != 0) {
        logit = penalised(logit, n_seen, settings.repeat_penalty, settings.presence_penalty,
                          settings.frequency_penalty);
        p.logits[id] = logit;
      }
      const uint64_t found = uint64_t{order_key(logit)} << 32 | ~static_cast<uint32_t>(id);
      best = found > best ? found : best;
    }
    s.best[thread] = best;
    s.bad[thread] = bad;
  });
  reduce_best(block, s);
  block.each([&](int thread) {
    if (thread == 0) {
      p.partials[block.idx()].best = s.best[0];
      p.partials[block.idx()].bad = s.bad[0];
    }
  });
  if (!block.is_last(&p.state->arrived)) {
    return;
  }
  block.each([&](int thread) {
    const bool has_block = thread < block.n_blocks();
    s.best[thread] = has_block ? p.partials[thread].best : 0;
    s.bad[thread] = has_block ? p.partials[thread].bad : kNoId;
  });
  reduce_best(block, s);
  block.each([&](int thread) {
    if (thread != 0) {
      return;
    }
    if (s.bad[0] != kNoId) {
      const bool is_inf = bits_of_f32(p.logits[s.bad[0]]) == 0x7f800000u;
      report_fault(p, is_inf ? SampleFault::kInf : SampleFault::kNan, s.bad[0]);
      return;
    }
    const float best = logit_of_key(static_cast<uint32_t>(s.best[0] >> 32));
    if (!(best >= -kLargestF32)) {
      report_fault(p, SampleFault::kNothingFinite, 0);
      return;
    }
    if (is_greedy(settings)) {
      accept_token(p, static_cast<int32_t>(~static_cast<uint32_t>(s.best[0])));
      return;
    }
    p.state->best = best;
    p.state->floor_key = 0;
    p.state->n_ties = 0;
  });
}

}  // namespace apr
