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
  std::vector<int64_t> rerouted;  // tokens whose experts, or their order, differ within the bound
  std::vector<int64_t> wrong;     // those that differ beyond it, or are no choice at all
  // Of the first wrong one: between two logits, relative to the largest; infinite of no choice.
  double wrong_gap = 0.0;
};

// Whether `found` [n_tokens, n_used] may stand for `expected`, the oracle's choice from its
// `logits` [n_tokens, n_experts]: slot by slot, the two experts' logits are at most `bound` times
// the largest |logit| of the token apart.
RouteVerdict judge_routes(std::span<const float> logits, std::span<const int32_t> found,
                          std::span<const int32_t> expected, int64_t n_tokens, double bound);

// Softmax of the chosen logits [n_tokens, n_used], as the reference kernel computes it.
std::vector<float> route_weights(std::span<const float> logits, std::span<const int32_t> ids,
                                 int64_t n_tokens);

// Judges `found` [n_tokens, n_used] beside what the oracle, in `values`, just chose for `op`, a
// kMoeRoute, and puts each choice that is allowed in place of the oracle's.
RouteVerdict take_over_routes(const Op& op, std::span<const int32_t> found, double bound,
                              StepValues& values);

// How far the logits of a router may be from the oracle's after all layers before it, relative to
// the largest: in exact mode as logits of the model (2e-4 of the largest decide nothing), by
// default 2^-6, what a cosine of 0.9999 leaves (the square root of 2e-4).
double route_bound(bool exact);

// The experts that each position of a sequence took, op by op.
class RouteTrace {
 public:
  // Of the positions after those that op `op_idx` has: ids [n_tokens, n_used].
  void append(int op_idx, int64_t n_used, std::span<const int32_t> ids);
  // [n_positions, n_used] of op `op_idx`, from `first_position` on, all of which were appended.
  std::span<const int32_t> chosen(int op_idx, int64_t first_position, int64_t n_positions) const;
  // Whether the first `n_positions`, which both have, took the same experts in the same order.
  bool agrees(const RouteTrace& other, int64_t n_positions) const;
  int64_t n_ops() const { return static_cast<int64_t>(choices_.size()); }

 private:
  struct Choices {
    int64_t n_used = 0;
    std::vector<int32_t> ids;  // [n_positions, n_used]
  };
  std::map<int, Choices> choices_;  // by op_idx
};

// Keeps what a backend chooses, from the first step of a sequence on.
class RouteRecorder final : public StepObserver {
 public:
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override;
  const RouteTrace& trace() const { return trace_; }

 private:
  RouteTrace trace_;
};

using ReroutedLayers = std::map<int64_t, std::vector<int>>;  // position -> layers, both ascending

// Watches the oracle, lowered one op a stage, run the same sequence, in steps of any size: it takes
// over each recorded choice that its own logits allow.
class RouteReplay final : public StepObserver {
 public:
  // `trace` must outlive it; a step may only have positions that it has.
  RouteReplay(const RouteTrace& trace, double bound) : trace_(trace), bound_(bound) {}
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override;
  const RouteTrace& taken() const { return taken_; }  // what the oracle went on with
  int64_t n_choices() const { return n_choices_; }    // of all positions and layers
  int64_t n_rerouted() const { return n_rerouted_; }  // those taken over
  const ReroutedLayers& rerouted() const { return rerouted_; }
  const std::string& failure() const { return failure_; }  // the first wrong choice; empty: none

 private:
  const RouteTrace& trace_;
  double bound_;
  RouteTrace taken_;
  std::map<int, int64_t> n_done_;  // positions, by op_idx
  int64_t n_choices_ = 0, n_rerouted_ = 0;
  ReroutedLayers rerouted_;
  std::string failure_;
};

// The bits of 32-bit integers as StepValues reads and writes them, and back.
std::vector<float> as_float_bits(std::span<const int32_t> ids);
std::vector<int32_t> as_ids(std::span<const float> bits);

}  // namespace apr
