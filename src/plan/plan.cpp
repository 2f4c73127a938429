#include "apr/plan.h"

#include <fmt/format.h>

#include <array>

#include "base/format.h"

namespace apr {

const char* op_kind_name(OpKind kind) {
  constexpr std::array kNames = {"embed",       "rms_norm",  "matmul",         "split_heads",
                                 "rope",        "kv_append", "attention",      "sigmoid_gate",
                                 "add",         "swiglu",    "conv1d",         "l2_norm",
                                 "delta_gates", "delta_net", "gated_rms_norm", "moe_route",
                                 "moe_ffn",     "row_gate",  "take_rows"};
  static_assert(kNames.size() == static_cast<size_t>(OpKind::kTakeRows) + 1);
  return kNames[static_cast<size_t>(kind)];
}

int64_t Value::row_elems() const {
  int64_t n_elems = 1;
  for (const int64_t axis : row_shape) {
    n_elems *= axis;
  }
  return n_elems;
}

std::string print_plan(const Plan& plan) {
  std::string out;
  const auto shape_of = [&](ValueId id) {
    const Value& value = plan.values[static_cast<size_t>(id)];
    return fmt::format(
        "[{}{}]{}", value.rows == RowDomain::kTokens ? "n_tokens" : "n_logit_rows",
        [&] {
          std::string axes;
          for (const int64_t axis : value.row_shape) {
            axes += fmt::format(", {}", axis);
          }
          return axes;
        }(),
        value.type == ValueType::kI32 ? " i32" : "");
  };
  uint64_t total_bytes = 0;
  for (size_t op_idx = 0; op_idx < plan.ops.size(); ++op_idx) {
    const Op& op = plan.ops[op_idx];
    std::string inputs, outputs, weights;
    for (const ValueId id : op.inputs) {
      inputs += fmt::format("{}{}", inputs.empty() ? "" : ", ",
                            plan.values[static_cast<size_t>(id)].name);
    }
    for (const ValueId id : op.outputs) {
      outputs += (outputs.empty() ? "" : ", ") + shape_of(id);
    }
    uint64_t weight_bytes = 0;
    for (const Weight* weight : op.weights) {
      if (weight != nullptr) {
        weights += fmt::format("  {} {} {}", weight->name, weight->type->name,
                               format_shape(weight->shape));
        weight_bytes += static_cast<uint64_t>(weight->size_bytes);
      }
    }
    total_bytes += weight_bytes;
    out += fmt::format("{:4}  {:14} {:28} <- {}  {}{}{}\n", op_idx, op_kind_name(op.kind), op.name,
                       inputs.empty() ? "ids" : inputs, outputs, weights,
                       weight_bytes > 0 ? "  " + format_bytes(weight_bytes) : "");
  }
  int64_t kv_bytes = 0, state_bytes = 0;
  for (const StateSpec& state : plan.states) {
    kv_bytes += state.elems_per_position * static_cast<int64_t>(sizeof(float));
    state_bytes += state.elems * static_cast<int64_t>(sizeof(float));
  }
  out += fmt::format("{} ops, weights read {}, kv cache {} per position, recurrent state {}\n",
                     plan.ops.size(), format_bytes(total_bytes),
                     format_bytes(static_cast<uint64_t>(kv_bytes)),
                     format_bytes(static_cast<uint64_t>(state_bytes)));
  return out;
}

}  // namespace apr
