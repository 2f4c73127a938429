// Whether a backend's logits are the oracle's: measures, bounds and the verdict. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apr/tokenizer.h"

namespace apr {

// cosine of two vectors in f64; 1 for two zero vectors, 0 for one, NaN where a value is NaN.
double cosine_similarity(std::span<const float> a, std::span<const float> b);

// max |a - oracle| / max |oracle|; infinite where a value of `a` is not finite.
double relative_linf(std::span<const float> a, std::span<const float> oracle);

// One position's logits beside the oracle's.
struct LogitsParity {
  int64_t position = 0;
  bool is_decode = false;  // computed as a step of one token
  double cosine = 0.0;
  double kl = 0.0;  // D(oracle || other) of the softmax at temperature 1, in nats
  double relative_linf = 0.0;
  TokenId oracle_id = -1, id = -1;  // the largest logit of each
  double margin = 0.0;              // of the oracle's largest logit over its second
  double oracle_max_abs = 0.0;      // largest |logit| of the oracle
};

// oracle, other: [vocab_rows] f32; the softmax and the largest logit are of the first n_tokens.
LogitsParity compare_logits(std::span<const float> oracle, std::span<const float> other,
                            int64_t n_tokens);

struct ParityBounds {
  double min_cosine = 0.0;
  std::optional<double> max_relative_linf;
  std::optional<double> max_mean_kl;
  double margin = 0.0;           // the ids must be equal from this margin on,
  double relative_margin = 0.0;  // and from this times the oracle's largest |logit|: the larger
};

// Exact mode: cosine 0.99999, Linf 1e-4, margin 2e-4 x max |logit|. Default mode: cosine 0.9999,
// mean KL 1e-4 (of trained weights: others spread their probability as no model does), margin 0.05.
// With 8-bit activations, which nobody gets unasked: their own cosine, 0.999 for the integers of
// dp4a, 0.95 for FP8, that is, errors sqrt(10) and sqrt(500) times as large, and so the margin;
// their KL is not judged.
constexpr double kDp4aCosine = 0.999, kFp8Cosine = 0.95;
ParityBounds parity_bounds(bool exact, bool trained, std::optional<double> eight_bit_cosine = {});

// Why this position is out of bounds; empty where it is not.
std::string position_failure(const LogitsParity& position, const ParityBounds& bounds);

struct ParityVerdict {
  bool passed = true;
  std::string reason;             // why not: the first position out of bounds, or the mean
  std::vector<size_t> near_ties;  // positions with other ids, at a margin too small to judge
  double min_cosine = 1.0, mean_kl = 0.0, max_relative_linf = 0.0;
};

// Of at least one position.
ParityVerdict judge(std::span<const LogitsParity> positions, const ParityBounds& bounds);

}  // namespace apr
