#include "generate/moe_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

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
    double gap = 0.0, largest = 0.0;
    for (const float logit : row) {
      largest = std::max(largest, std::abs(static_cast<double>(logit)));
    }
    bool good = is_choice(mine, n_experts);
    for (size_t slot = 0; good && slot < n_used; ++slot) {
      gap = std::max(gap, std::abs(static_cast<double>(row[static_cast<size_t>(mine[slot])]) -
                                   static_cast<double>(row[static_cast<size_t>(its[slot])])));
    }
    good = good && gap <= bound * largest;
    verdict.worst_gap = std::max(verdict.worst_gap, largest > 0.0 ? gap / largest : 0.0);
    if (!good && verdict.n_wrong == 0) {
      verdict.worst_token = static_cast<int64_t>(token);
    }
    (good ? verdict.n_rerouted : verdict.n_wrong) += 1;
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

void RouteRecorder::after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) {
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = exec.plan->ops[static_cast<size_t>(op_idx)];
    if (op.kind == OpKind::kMoeRoute) {
      chosen_[op_idx] = as_ids(values.read(op.outputs[0]));
    }
  }
}

const std::vector<int32_t>* RouteRecorder::chosen(int op_idx) const {
  const auto found = chosen_.find(op_idx);
  return found == chosen_.end() ? nullptr : &found->second;
}

void RouteReplay::after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) {
  APR_CHECK(stage.n_ops == 1, "the oracle runs one op a stage");
  const Op& op = exec.plan->ops[static_cast<size_t>(stage.first_op)];
  if (op.kind != OpKind::kMoeRoute) {
    return;
  }
  const std::vector<int32_t>* found = recorder_.chosen(stage.first_op);
  APR_CHECK(found != nullptr, "the backend ran this step before");
  const std::vector<float> logits = values.read(op.inputs[0]);
  const std::vector<int32_t> expected = as_ids(values.read(op.outputs[0]));
  const auto n_tokens = static_cast<int64_t>(expected.size()) / op.n_used;
  const RouteVerdict verdict = judge_routes(logits, *found, expected, n_tokens, bound_);
  n_tokens_ += n_tokens;
  n_rerouted_ += verdict.n_rerouted;
  if (verdict.n_wrong > 0) {
    if (failure_.empty()) {
      failure_ = fmt::format(
          "{}: row {} of the step chose other experts, {:.3g} of the largest "
          "logit apart, at most {:.3g} is allowed",
          op.name, verdict.worst_token, verdict.worst_gap, bound_);
    }
    return;
  }
  if (verdict.n_rerouted > 0) {
    values.write(op.outputs[0], as_float_bits(*found));
    values.write(op.outputs[1], route_weights(logits, *found, n_tokens));
  }
}

}  // namespace apr
