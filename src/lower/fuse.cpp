#include "lower/fuse.h"

#include <algorithm>
#include <optional>

namespace apr {
namespace {

// Walks a run of ops from `first`; every step is a neighbour of the last.
class Run {
 public:
  Run(const Plan& plan, size_t first) : plan_(plan), first_(first), next_(first) {}

  bool at(OpKind kind) const { return next_ < plan_.ops.size() && plan_.ops[next_].kind == kind; }
  const Op& op() const { return plan_.ops[next_]; }
  // Takes the next op when it is of this kind.
  bool take(OpKind kind) {
    const bool found = at(kind);
    next_ += found ? 1 : 0;
    return found;
  }
  int count() const { return static_cast<int>(next_ - first_); }
  FusedRange range(const char* kernel) const { return {static_cast<int>(first_), count(), kernel}; }

 private:
  const Plan& plan_;
  size_t first_, next_;
};

// Whether the only reader of `id` is op `op_idx`.
bool only_read_by(const Plan& plan, ValueId id, size_t first_op, size_t n_ops) {
  for (size_t op_idx = 0; op_idx < plan.ops.size(); ++op_idx) {
    const bool inside = op_idx >= first_op && op_idx < first_op + n_ops;
    for (const ValueId input : plan.ops[op_idx].inputs) {
      if (input == id && !inside) {
        return false;
      }
    }
  }
  return true;
}

std::optional<FusedRange> match_matvec(const Plan& plan, size_t first) {
  Run run(plan, first);
  run.take(OpKind::kTakeRows);
  const bool has_norm = run.at(OpKind::kRmsNorm) && run.op().n_heads == 1;
  if (has_norm) {
    run.take(OpKind::kRmsNorm);
  }
  if (!run.at(OpKind::kMatmul)) {
    return std::nullopt;
  }
  const ValueId x = run.op().inputs[0];
  int n_matmuls = 0;
  std::vector<const Op*> matmuls;
  while (run.at(OpKind::kMatmul) && run.op().inputs[0] == x) {
    matmuls.push_back(&run.op());
    run.take(OpKind::kMatmul);
    ++n_matmuls;
  }
  const bool same_pair = n_matmuls == 2 &&
                         matmuls[0]->weights[0]->type == matmuls[1]->weights[0]->type &&
                         matmuls[0]->weights[0]->shape == matmuls[1]->weights[0]->shape;
  const char* kernel = "matvec";
  if (same_pair && run.at(OpKind::kSwiglu) && run.op().inputs[0] == matmuls[0]->outputs[0] &&
      run.op().inputs[1] == matmuls[1]->outputs[0]) {
    run.take(OpKind::kSwiglu);
    kernel = "matvec_swiglu";
  } else if (n_matmuls == 1 && run.at(OpKind::kAdd) &&
             run.op().inputs[1] == matmuls[0]->outputs[0]) {
    run.take(OpKind::kAdd);
  }
  // The normed input is not stored: all its readers must be in the run.
  if (has_norm && !only_read_by(plan, x, first, static_cast<size_t>(run.count()))) {
    return std::nullopt;
  }
  return run.range(kernel);
}

bool is_row_norm(const Op& op) {
  return op.kind == OpKind::kRmsNorm && op.n_heads == 1;
}

bool has_token_rows(const Plan& plan, ValueId id) {
  return plan.values[static_cast<size_t>(id)].rows == RowDomain::kTokens;
}

// Whether `id`, of token rows, has readers and all of them are products.
bool read_by_products_alone(const Plan& plan, ValueId id) {
  int n_readers = 0;
  for (const Op& op : plan.ops) {
    if (std::find(op.inputs.begin(), op.inputs.end(), id) != op.inputs.end()) {
      if (op.kind != OpKind::kMatmul) {
        return false;
      }
      ++n_readers;
    }
  }
  const Value& value = plan.values[static_cast<size_t>(id)];
  // The f32 that belong to the rows lie behind them, aligned, in what f32 rows would take.
  return n_readers > 0 && value.rows == RowDomain::kTokens && value.row_elems() % 4 == 0;
}

std::optional<FusedRange> match_project(const Plan& plan, size_t first) {
  constexpr size_t kMostMatmuls = 4;
  Run run(plan, first);
  std::vector<const Op*> matmuls;
  while (run.at(OpKind::kMatmul) && matmuls.size() < kMostMatmuls &&
         has_token_rows(plan, run.op().outputs[0]) &&
         (matmuls.empty() || run.op().inputs[0] == matmuls[0]->inputs[0])) {
    matmuls.push_back(&run.op());
    run.take(OpKind::kMatmul);
  }
  if (matmuls.empty()) {
    return std::nullopt;
  }
  // What is fused into the last op is not stored: nothing else may read it.
  const auto used_here = [&](const Op& op) {
    return only_read_by(plan, op.outputs[0], first, static_cast<size_t>(run.count()) + 1);
  };
  if (matmuls.size() == 2 && run.at(OpKind::kSwiglu) &&
      run.op().inputs[0] == matmuls[0]->outputs[0] &&
      run.op().inputs[1] == matmuls[1]->outputs[0] && used_here(*matmuls[0]) &&
      used_here(*matmuls[1])) {
    run.take(OpKind::kSwiglu);
    return run.range("project_swiglu");
  }
  if (matmuls.size() == 1 && run.at(OpKind::kAdd) && run.op().inputs[1] == matmuls[0]->outputs[0] &&
      used_here(*matmuls[0])) {
    const ValueId sum = run.op().outputs[0];
    run.take(OpKind::kAdd);
    const bool has_norm =
        run.at(OpKind::kRmsNorm) && is_row_norm(run.op()) && run.op().inputs[0] == sum;
    return has_norm && run.take(OpKind::kRmsNorm) ? run.range("project_add_norm")
                                                  : run.range("project_add");
  }
  return run.range("project");
}

std::optional<FusedRange> match_norm_rows(const Plan& plan, size_t first) {
  Run run(plan, first);
  if (run.at(OpKind::kRmsNorm) && is_row_norm(run.op()) &&
      read_by_products_alone(plan, run.op().outputs[0])) {
    run.take(OpKind::kRmsNorm);
    return run.range("norm_rows");
  }
  return std::nullopt;
}

// A router and the choice it makes; the normed input is stored, for the experts read it too.
std::optional<FusedRange> match_moe_route(const Plan& plan, size_t first) {
  Run run(plan, first);
  ValueId x = -1;  // of the norm
  if (run.at(OpKind::kRmsNorm) && is_row_norm(run.op())) {
    x = run.op().outputs[0];
    run.take(OpKind::kRmsNorm);
  }
  if (!run.at(OpKind::kMatmul) || (x >= 0 && run.op().inputs[0] != x)) {
    return std::nullopt;
  }
  const ValueId logits = run.op().outputs[0];
  run.take(OpKind::kMatmul);
  const bool routes = run.at(OpKind::kMoeRoute) && run.op().inputs[0] == logits;
  return routes && run.take(OpKind::kMoeRoute) ? std::optional(run.range("moe_route"))
                                               : std::nullopt;
}

std::optional<FusedRange> match_moe_ffn(const Plan& plan, size_t first) {
  Run run(plan, first);
  if (!run.at(OpKind::kMoeFfn)) {
    return std::nullopt;
  }
  const ValueId y = run.op().outputs[0];
  run.take(OpKind::kMoeFfn);
  if (run.at(OpKind::kAdd) && run.op().inputs[1] == y && run.op().inputs[0] != y &&
      only_read_by(plan, y, first, 2)) {
    run.take(OpKind::kAdd);
  }
  return run.range("moe_ffn");
}

std::optional<FusedRange> match_attention(const Plan& plan, size_t first) {
  Run run(plan, first);
  const ValueId q = run.op().inputs.empty() ? -1 : run.op().inputs[0];
  run.take(OpKind::kSplitHeads);
  if (run.at(OpKind::kRmsNorm) && run.op().n_heads == 1) {
    return std::nullopt;  // a norm of whole rows belongs to what follows it
  }
  while (run.take(OpKind::kRmsNorm)) {
  }
  if (!(run.take(OpKind::kRope) && run.take(OpKind::kRope) && run.take(OpKind::kKvAppend) &&
        run.take(OpKind::kAttention))) {
    return std::nullopt;
  }
  run.take(OpKind::kSigmoidGate);
  // q is normed and rotated in place.
  if (!only_read_by(plan, q, first, static_cast<size_t>(run.count()))) {
    return std::nullopt;
  }
  return run.range("attention");
}

// q, k and v with the attention that alone reads them; not where q carries gates.
std::optional<FusedRange> match_project_attention(const Plan& plan, size_t first) {
  constexpr size_t kMatmuls = 3;
  Run run(plan, first);
  std::vector<ValueId> made;
  while (made.size() < kMatmuls && run.at(OpKind::kMatmul) &&
         run.op().inputs[0] == plan.ops[first].inputs[0]) {
    made.push_back(run.op().outputs[0]);
    run.take(OpKind::kMatmul);
  }
  if (made.size() != kMatmuls || run.at(OpKind::kSplitHeads)) {
    return std::nullopt;
  }
  std::optional<FusedRange> range = match_attention(plan, first + kMatmuls);
  if (!range) {
    return std::nullopt;
  }
  *range = {static_cast<int>(first), range->n_ops + static_cast<int>(kMatmuls),
            "project_attention"};
  std::vector<ValueId> read;  // from outside of the attention, in order: q, k, v
  for (int op_idx = range->first_op + static_cast<int>(kMatmuls);
       op_idx < range->first_op + range->n_ops; ++op_idx) {
    for (const ValueId input : plan.ops[static_cast<size_t>(op_idx)].inputs) {
      if (std::find(made.begin(), made.end(), input) != made.end()) {
        read.push_back(input);
      }
    }
  }
  const bool are_all_used_here = std::all_of(made.begin(), made.end(), [&](ValueId id) {
    return only_read_by(plan, id, first, static_cast<size_t>(range->n_ops));
  });
  return read == made && are_all_used_here ? range : std::nullopt;
}

}  // namespace

std::vector<FusedRange> fuse_for_cuda(const Plan& plan, const Target& target) {
  std::vector<FusedRange> ranges;
  for (size_t op_idx = 0; op_idx < plan.ops.size();) {
    std::optional<FusedRange> range = match_attention(plan, op_idx);
    if (!range) {
      range = match_moe_route(plan, op_idx);
    }
    if (!range) {
      range = match_moe_ffn(plan, op_idx);
    }
    if (!range && target.phase == Phase::kDecode) {
      range = match_matvec(plan, op_idx);
    }
    if (!range && target.phase == Phase::kPrefill && target.f16_rows) {
      range = match_project_attention(plan, op_idx);
      if (!range) {
        range = match_project(plan, op_idx);
      }
      if (!range) {
        range = match_norm_rows(plan, op_idx);
      }
    }
    ranges.push_back(range.value_or(
        FusedRange{static_cast<int>(op_idx), 1, op_kind_name(plan.ops[op_idx].kind)}));
    op_idx += static_cast<size_t>(ranges.back().n_ops);
  }
  return ranges;
}

ValueFormat last_value_format(const Plan& plan, const Target& target, const FusedRange& range) {
  const Op& last = plan.ops[static_cast<size_t>(range.first_op + range.n_ops - 1)];
  const bool makes_rows = range.kernel == "norm_rows" || range.kernel == "project_swiglu" ||
                          range.kernel == "project_add_norm";
  if (!makes_rows || !read_by_products_alone(plan, last.outputs[0])) {
    return ValueFormat::kF32;
  }
  return has_e4m3_products(plan, target, last.outputs[0]) ? ValueFormat::kE4m3Rows
                                                          : ValueFormat::kF16Rows;
}

}  // namespace apr
