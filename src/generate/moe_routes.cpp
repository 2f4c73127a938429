#include "generate/moe_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "apr/error.h"

namespace apr {
namespace {

bool is_choice(std::span<const int32_t> ids, size_t n_experts) {
  std::vector<bool> taken(n_experts, false);
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= n_experts || taken[static_cast<size_t>(id)]) {
      return false;
    }
    taken[static_cast<size_t>(id)] = true;
  }
  return true;
}

// The largest distance between the logits of two choices, slot by slot, relative to the largest
// |logit|; infinite where `mine` is no choice.
double relative_gap(std::span<const float> logits, std::span<const int32_t> mine,
                    std::span<const int32_t> its) {
  if (!is_choice(mine, logits.size())) {
    return std::numeric_limits<double>::infinity();
  }
  double gap = 0.0, largest = 0.0;
  for (const float logit : logits) {
    largest = std::max(largest, std::abs(static_cast<double>(logit)));
  }
  for (size_t slot = 0; slot < mine.size(); ++slot) {
    gap = std::max(gap, std::abs(static_cast<double>(logits[static_cast<size_t>(mine[slot])]) -
                                 static_cast<double>(logits[static_cast<size_t>(its[slot])])));
  }
  return gap == 0.0 ? 0.0 : gap / largest;
}

std::string wrong_choice(const Op& op, int64_t position, double gap, double bound) {
  if (std::isinf(gap)) {
    return fmt::format("position {}: {} (layer {}) holds no choice of {} experts", position,
                       op.name, op.layer_idx, op.n_used);
  }
  return fmt::format(
      "position {}: {} (layer {}) chose other experts, {:.3g} of the largest router logit apart, "
      "at most {:.3g} is allowed",
      position, op.name, op.layer_idx, gap, bound);
}

}  // namespace

std::vector<float> as_float_bits(std::span<const int32_t> ids) {
  std::vector<float> bits(ids.size());
  std::transform(ids.begin(), ids.end(), bits.begin(),
                 [](int32_t id) { return std::bit_cast<float>(id); });
  return bits;
}

std::vector<int32_t> as_ids(std::span<const float> bits) {
  std::vector<int32_t> ids(bits.size());
  std::transform(bits.begin(), bits.end(), ids.begin(),
                 [](float value) { return std::bit_cast<int32_t>(value); });
  return ids;
}

RouteVerdict judge_routes(std::span<const float> logits, std::span<const int32_t> found,
                          std::span<const int32_t> expected, int64_t n_tokens, double bound) {
  APR_CHECK(found.size() == expected.size(), "two choices of one shape");
  const auto n_rows = static_cast<size_t>(n_tokens);
  const size_t n_experts = logits.size() / n_rows, n_used = found.size() / n_rows;
  RouteVerdict verdict;
  for (size_t token = 0; token < n_rows; ++token) {
    const auto row = logits.subspan(token * n_experts, n_experts);
    const auto mine = found.subspan(token * n_used, n_used);
    const auto its = expected.subspan(token * n_used, n_used);
    if (std::equal(mine.begin(), mine.end(), its.begin())) {
      continue;
    }
    const double gap = relative_gap(row, mine, its);
    if (gap <= bound) {
      verdict.rerouted.push_back(static_cast<int64_t>(token));
      continue;
    }
    if (verdict.wrong.empty()) {
      verdict.wrong_gap = gap;
    }
    verdict.wrong.push_back(static_cast<int64_t>(token));
  }
  return verdict;
}

std::vector<float> route_weights(std::span<const float> logits, std::span<const int32_t> ids,
                                 int64_t n_tokens) {
  const auto n_rows = static_cast<size_t>(n_tokens);
  const size_t n_experts = logits.size() / n_rows, n_used = ids.size() / n_rows;
  std::vector<float> weights;
  for (size_t token = 0; token < n_rows; ++token) {
    const auto row = logits.subspan(token * n_experts, n_experts);
    const double largest = *std::max_element(row.begin(), row.end());
    std::vector<double> exps;
    double sum = 0.0;
    for (size_t slot = 0; slot < n_used; ++slot) {
      const auto id = static_cast<size_t>(ids[token * n_used + slot]);
      exps.push_back(std::exp(static_cast<double>(row[id]) - largest));
      sum += exps.back();
    }
    std::transform(exps.begin(), exps.end(), std::back_inserter(weights),
                   [&](double value) { return static_cast<float>(value / sum); });
  }
  return weights;
}

double route_bound(bool exact) {
  return exact ? 2e-4 : 0x1p-6;
}

RouteVerdict take_over_routes(const Op& op, std::span<const int32_t> found, double bound,
                              StepValues& values) {
  const std::vector<float> logits = values.read(op.inputs[0]);
  std::vector<int32_t> ids = as_ids(values.read(op.outputs[0]));
  const auto n_used = static_cast<size_t>(op.n_used);
  const size_t n_tokens = ids.size() / n_used, n_experts = logits.size() / n_tokens;
  RouteVerdict verdict = judge_routes(logits, found, ids, static_cast<int64_t>(n_tokens), bound);
  if (verdict.rerouted.empty()) {
    return verdict;
  }
  std::vector<float> weights = values.read(op.outputs[1]);
  for (const int64_t token : verdict.rerouted) {
    const size_t first = static_cast<size_t>(token) * n_used;
    const auto choice = found.subspan(first, n_used);
    const std::vector<float> its_weights = route_weights(
        std::span(logits).subspan(static_cast<size_t>(token) * n_experts, n_experts), choice, 1);
    std::copy(choice.begin(), choice.end(), ids.begin() + static_cast<ptrdiff_t>(first));
    std::copy(its_weights.begin(), its_weights.end(),
              weights.begin() + static_cast<ptrdiff_t>(first));
  }
  values.write(op.outputs[0], as_float_bits(ids));
  values.write(op.outputs[1], weights);
  return verdict;
}

void RouteTrace::append(int op_idx, int64_t n_used, std::span<const int32_t> ids) {
  Choices& choices = choices_[op_idx];
  choices.n_used = n_used;
  choices.ids.insert(choices.ids.end(), ids.begin(), ids.end());
}

std::span<const int32_t> RouteTrace::chosen(int op_idx, int64_t first_position,
                                            int64_t n_positions) const {
  const auto found = choices_.find(op_idx);
  APR_CHECK(found != choices_.end(), "an op whose choices were recorded");
  const Choices& choices = found->second;
  const auto first = static_cast<size_t>(first_position * choices.n_used);
  const auto n_ids = static_cast<size_t>(n_positions * choices.n_used);
  APR_CHECK(first + n_ids <= choices.ids.size(), "positions that were recorded");
  return std::span(choices.ids).subspan(first, n_ids);
}

bool RouteTrace::agrees(const RouteTrace& other, int64_t n_positions) const {
  return n_ops() == other.n_ops() &&
         std::all_of(choices_.begin(), choices_.end(), [&](const auto& entry) {
           const auto mine = chosen(entry.first, 0, n_positions);
           const auto its = other.chosen(entry.first, 0, n_positions);
           return std::equal(mine.begin(), mine.end(), its.begin(), its.end());
         });
}

void RouteRecorder::after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) {
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = exec.plan->ops[static_cast<size_t>(op_idx)];
    if (op.kind == OpKind::kMoeRoute) {
      trace_.append(op_idx, op.n_used, as_ids(values.read(op.outputs[0])));
    }
  }
}

void RouteReplay::after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) {
  APR_CHECK(stage.n_ops == 1, "the oracle runs one op a stage");
  const Op& op = exec.plan->ops[static_cast<size_t>(stage.first_op)];
  if (op.kind != OpKind::kMoeRoute) {
    return;
  }
  int64_t& n_done = n_done_[stage.first_op];
  const auto n_tokens = static_cast<int64_t>(values.read(op.outputs[0]).size()) / op.n_used;
  const RouteVerdict verdict =
      take_over_routes(op, trace_.chosen(stage.first_op, n_done, n_tokens), bound_, values);
  taken_.append(stage.first_op, op.n_used, as_ids(values.read(op.outputs[0])));
  if (!verdict.wrong.empty() && failure_.empty()) {
    failure_ = wrong_choice(op, n_done + verdict.wrong[0], verdict.wrong_gap, bound_);
  }
  for (const int64_t token : verdict.rerouted) {
    rerouted_[n_done + token].push_back(op.layer_idx);
  }
  n_choices_ += n_tokens;
  n_rerouted_ += static_cast<int64_t>(verdict.rerouted.size());
  n_done += n_tokens;
}

}  // namespace apr
