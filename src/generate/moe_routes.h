// Routing is discontinuous: where router logits are nearly equal, two correct backends may choose
// different experts. Such a choice is not judged; the oracle makes the other's and is compared
// then.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "apr/backend.h"

namespace apr {

// Choices of experts beside the oracle's for the same tokens.
struct RouteVerdict {
  int64_t n_rerouted = 0;   // tokens whose experts, or their order, differ within the bound
  int64_t n_wrong = 0;      // those that differ beyond it, or are no choice at all
  int64_t worst_token = 0;  // the first wrong one
  double worst_gap =
      0.0;  // of a token with another choice: between logits, relative to the largest
};

// Whether `found` [n_tokens, n_used] may stand for `expected`, the oracle's choice from its
// `logits` [n_tokens, n_experts]: slot by slot, the two experts' logits are at most `bound` times
// the largest |logit| of the token apart.
RouteVerdict judge_routes(std::span<const float> logits, std::span<const int32_t> found,
                          std::span<const int32_t> expected, int64_t n_tokens, double bound);

// Softmax of the chosen logits [n_tokens, n_used], as the reference kernel computes it.
std::vector<float> route_weights(std::span<const float> logits, std::span<const int32_t> ids,
                                 int64_t n_tokens);

// How far the logits of a router may be from the oracle's after all layers before it, relative to
// the largest: in exact mode as logits of the model (2e-4 of the largest decide nothing), by
// default 2^-6, what a cosine of 0.9999 leaves (the square root of 2e-4).
double route_bound(bool exact);

// Keeps what a backend chose in its last step.
class RouteRecorder final : public StepObserver {
 public:
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override;
  // [n_tokens, n_used] of op `op_idx`; null before it ran.
  const std::vector<int32_t>* chosen(int op_idx) const;

 private:
  std::map<int, std::vector<int32_t>> chosen_;  // by op_idx
};

// Watches the oracle, lowered one op a stage, run the same step: it takes over each recorded choice
// that its own logits allow.
class RouteReplay final : public StepObserver {
 public:
  // `recorder` must outlive it.
  RouteReplay(const RouteRecorder& recorder, double bound) : recorder_(recorder), bound_(bound) {}
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override;
  int64_t n_tokens() const { return n_tokens_; }  // routed, of all layers
  int64_t n_rerouted() const { return n_rerouted_; }
  const std::string& failure() const { return failure_; }  // the first wrong choice; empty: none

 private:
  const RouteRecorder& recorder_;
  double bound_;
  int64_t n_tokens_ = 0, n_rerouted_ = 0;
  std::string failure_;
};

// The bits of 32-bit integers as StepValues reads and writes them, and back.
std::vector<float> as_float_bits(std::span<const int32_t> ids);
std::vector<int32_t> as_ids(std::span<const float> bits);

}  // namespace apr
