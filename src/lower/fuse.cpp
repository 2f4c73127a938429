#include "lower/fuse.h"

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

std::optional<FusedRange> match_qk_rope_append(const Plan& plan, size_t first) {
  Run run(plan, first);
  run.take(OpKind::kSplitHeads);
  if (run.at(OpKind::kRmsNorm) && run.op().n_heads == 1) {
    return std::nullopt;  // a norm of whole rows belongs to what follows it
  }
  while (run.take(OpKind::kRmsNorm)) {
  }
  if (run.take(OpKind::kRope) && run.take(OpKind::kRope) && run.take(OpKind::kKvAppend)) {
    return run.range("qk_rope_append");
  }
  return std::nullopt;
}

std::optional<FusedRange> match_attention(const Plan& plan, size_t first) {
  Run run(plan, first);
  if (!run.take(OpKind::kAttention)) {
    return std::nullopt;
  }
  run.take(OpKind::kSigmoidGate);
  return run.range("attention_decode");
}

}  // namespace

std::vector<FusedRange> fuse_for_cuda(const Plan& plan, Phase phase) {
  std::vector<FusedRange> ranges;
  for (size_t op_idx = 0; op_idx < plan.ops.size();) {
    std::optional<FusedRange> range = match_qk_rope_append(plan, op_idx);
    if (!range && phase == Phase::kDecode) {
      range = match_matvec(plan, op_idx);
    }
    if (!range && phase == Phase::kDecode) {
      range = match_attention(plan, op_idx);
    }
    ranges.push_back(range.value_or(
        FusedRange{static_cast<int>(op_idx), 1, op_kind_name(plan.ops[op_idx].kind)}));
    op_idx += static_cast<size_t>(ranges.back().n_ops);
  }
  return ranges;
}

}  // namespace apr
