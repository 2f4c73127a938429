// Arguments and memory of the sampling kernels, as in params.h.
#pragma once

#include "params.h"

namespace apr {

constexpr int kSampleThreads = 512;                // of a block
constexpr int kMostSampleBlocks = kSampleThreads;  // the last block takes one a thread
constexpr int64_t kMostSampleTokens = int64_t{1}
                                      << 26;  // ids of a block: sums of 15-bit pieces fit
constexpr int kMostStopIds = 32;
constexpr int kOutcomeSlots = 2;   // the step in flight has one, the step being read the other
constexpr int kSampleDigits = 3;   // of a key: 11, 11 and 10 bits
constexpr int kSampleBins = 2048;  // of a histogram

// Of one answer; what generate.h says of SamplingParams.
struct SamplerSettings {
  double temperature, top_p, min_p;
  double repeat_penalty, presence_penalty, frequency_penalty;
  uint64_t seed;
  int64_t repeat_last_n;
  int32_t top_k;
  int32_t has_penalties;  // 0 or 1
  int32_t n_stop_ids;
  int32_t stop_ids[kMostStopIds];
};

// How far the answer is; written by the kernels.
struct SamplerState {
  uint64_t step;      // index of the token being chosen
  int64_t n_history;  // ids in the history
  int64_t n_left;     // tokens that may still be chosen
  int32_t done;       // 1: nothing is written any more
  uint32_t arrived;   // blocks of the running kernel that have ended; zero between kernels
  // The candidates of the step: logits above floor_key and the first n_ties at it.
  float best;
  uint32_t floor_key, n_ties;
  // Of a selection: the digits of the next floor so far; what the amounts above them sum to; what
  // the sum of all that stay must reach.
  uint32_t prefix;
  uint64_t before, goal;
};

enum class SampleFault : int32_t { kNone, kNan, kInf, kNothingFinite };

// What the host reads of a step.
struct SampleOutcome {
  int32_t token;  // of a fault, the one whose logit it is
  SampleFault fault;
};

// What one block found.
struct SamplePartial {
  uint64_t best;  // key and id of the largest logit
  uint64_t sum;   // weights above the floor
  uint32_t bad;   // first id of a NaN or +inf
  uint32_t n_ties;
};

struct SampleParams {
  float* logits;  // [n_tokens] f32; penalties are applied in place
  const SamplerSettings* settings;
  SamplerState* state;
  int32_t* history;         // [2 * context] ids of prompt and answer; with penalties alone
  int32_t* counts;          // [n_tokens] how often the window of the penalties holds each
  SamplePartial* partials;  // [n_blocks]
  uint64_t* histogram;      // [kSampleBins], zero before and after
  StepState* step;          // of the decode step to come
  int32_t* ids;             // and its token
  SampleOutcome* outcomes;  // [kOutcomeSlots], in host memory
  int32_t n_tokens;         // without padded ids; at most kMostSampleTokens
  int32_t chunk;            // ids of a block
  int32_t digit;            // of a selection: 0 to kSampleDigits - 1
};

// The passes that settings need besides the first.
struct SamplePasses {
  bool top_k, top_p, draw;
};

APR_DEVICE bool is_greedy(const SamplerSettings& settings) {
  return settings.temperature == 0.0 || settings.top_k == 1;
}

APR_DEVICE SamplePasses sample_passes(const SamplerSettings& settings, int32_t n_tokens) {
  const bool draw = !is_greedy(settings);
  return {draw && settings.top_k != 0 && settings.top_k < n_tokens, draw && settings.top_p < 1.0,
          draw};
}

}  // namespace apr
