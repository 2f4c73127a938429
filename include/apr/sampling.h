// How a token is chosen from logits; see Sampler in generate.h.
#pragma once

#include <cstdint>

namespace apr {

struct SamplingParams {
  double temperature = 0.0;        // 0: greedy
  int64_t top_k = 40;              // 0: off
  double top_p = 1.0;              // 1: off
  double min_p = 0.0;              // 0: off
  double repeat_penalty = 1.0;     // 1: off; divides positive, multiplies negative logits
  double presence_penalty = 0.0;   // subtracted once from logits of seen tokens
  double frequency_penalty = 0.0;  // subtracted per occurrence
  int64_t repeat_last_n = 64;      // window of all three; 0: off, -1: all
  uint64_t seed = 299792458;

  bool is_greedy() const { return temperature == 0.0 || top_k == 1; }
  bool has_penalties() const {
    return repeat_last_n != 0 &&
           (repeat_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0);
  }
};

}  // namespace apr
