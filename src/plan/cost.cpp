#include "plan/cost.h"

#include <algorithm>

namespace apr {
namespace {

constexpr double kFlopsPerProduct = 2.0;  // a multiplication and an addition
constexpr int64_t kF32Bytes = 4;

// Of a stack of experts, the share that n_tokens x n_used of them touch at most.
double experts_read(const Op& op, int64_t n_tokens) {
  const double n_experts = static_cast<double>(op.weights[0]->n_experts);
  return std::min(1.0, static_cast<double>(n_tokens * op.n_used) / n_experts);
}

double elems(const Weight& weight) {
  return static_cast<double>(weight.n_rows) * static_cast<double>(weight.n_cols);
}

}  // namespace

StepCost step_cost(const Plan& plan, int64_t n_tokens, int64_t first_position, int64_t n_logit_rows,
                   int64_t kv_elem_bytes) {
  StepCost cost;
  const double tokens = static_cast<double>(n_tokens);
  for (const Op& op : plan.ops) {
    const Value* output =
        op.outputs.empty() ? nullptr : &plan.values[static_cast<size_t>(op.outputs[0])];
    switch (op.kind) {
      case OpKind::kMatmul: {
        const double rows =
            output->rows == RowDomain::kTokens ? tokens : static_cast<double>(n_logit_rows);
        cost.weight_bytes += rows > 0.0 ? static_cast<double>(op.weights[0]->size_bytes) : 0.0;
        cost.flops += kFlopsPerProduct * rows * elems(*op.weights[0]);
        break;
      }
      case OpKind::kMoeFfn:
        for (size_t idx = 0; idx < 3; ++idx) {  // gate, up, down
          const Weight& weight = *op.weights[idx];
          cost.weight_bytes += static_cast<double>(weight.size_bytes) * experts_read(op, n_tokens);
          cost.flops += kFlopsPerProduct * tokens * static_cast<double>(op.n_used) * elems(weight);
        }
        break;
      case OpKind::kAttention: {
        const double last = static_cast<double>(first_position + n_tokens);
        const double keys = tokens * static_cast<double>(first_position) +
                            tokens * (tokens + 1.0) / 2.0;  // summed over the tokens
        const double q_dim = static_cast<double>(op.n_heads * op.head_dim);
        cost.flops += 2.0 * kFlopsPerProduct * q_dim * keys;  // q k and p v
        cost.state_bytes += 2.0 * last * static_cast<double>(op.n_kv_heads * op.head_dim) *
                            static_cast<double>(kv_elem_bytes);
        break;
      }
      case OpKind::kConv1d:
      case OpKind::kDeltaNet: {
        const double state =
            static_cast<double>(plan.states[static_cast<size_t>(op.state_idx)].elems);
        cost.state_bytes += 2.0 * state * kF32Bytes;
        // Decay, S k, the update and S q of each token, over the whole state.
        cost.flops += op.kind == OpKind::kDeltaNet ? 7.0 * tokens * state : 0.0;
        break;
      }
      default:
        break;
    }
  }
  return cost;
}

}  // namespace apr
