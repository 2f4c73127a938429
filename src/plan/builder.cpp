#include "plan/builder.h"

#include <fmt/format.h>

#include <cmath>

#include "apr/error.h"

namespace apr {

PlanBuilder::PlanBuilder(const Model& model) : model_(model), desc_(model.desc()) {
  plan_.model = &model;
}

Plan PlanBuilder::take(ValueId logits) {
  plan_.logits = logits;
  return std::move(plan_);
}

std::string PlanBuilder::full_name(const char* name) const {
  return layer_idx_ < 0 ? std::string(name) : fmt::format("blk.{}.{}", layer_idx_, name);
}

ValueId PlanBuilder::value(const char* name, std::vector<int64_t> row_shape, ValueType type) {
  plan_.values.push_back({full_name(name), domain_, std::move(row_shape), type});
  return static_cast<ValueId>(plan_.values.size()) - 1;
}

Op& PlanBuilder::append(OpKind kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  Op op;
  op.kind = kind;
  op.layer_idx = layer_idx_;
  op.name = outputs.empty() ? full_name(op_kind_name(kind))
                            : plan_.values[static_cast<size_t>(outputs[0])].name;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  plan_.ops.push_back(std::move(op));
  return plan_.ops.back();
}

const Weight& PlanBuilder::weight(Role role) const {
  const bool of_model =
      role == Role::kTokenEmbd || role == Role::kOutput || role == Role::kOutputNorm;
  const Weight* found = model_.find(role, of_model ? -1 : layer_idx_);
  APR_CHECK(found != nullptr, "the model binds every weight its plan reads");
  return *found;
}

int64_t PlanBuilder::row_elems(ValueId id) const {
  return plan_.values[static_cast<size_t>(id)].row_elems();
}

int PlanBuilder::add_state(StateKind kind, int64_t elems_per_position, int64_t elems) {
  plan_.states.push_back({kind, layer_idx_, elems_per_position, elems});
  return static_cast<int>(plan_.states.size()) - 1;
}

ValueId PlanBuilder::embed(const char* name) {
  const ValueId y = value(name, {desc_.model_dim});
  append(OpKind::kEmbed, {}, {y}).weights = {&weight(Role::kTokenEmbd)};
  return y;
}

ValueId PlanBuilder::rms_norm(const char* name, ValueId x, Role role) {
  const Weight& w = weight(role);
  const ValueId y = value(name, plan_.values[static_cast<size_t>(x)].row_shape);
  Op& op = append(OpKind::kRmsNorm, {x}, {y});
  op.weights = {&w};
  op.head_dim = w.n_cols;
  op.n_heads = row_elems(x) / w.n_cols;
  op.eps = desc_.rms_eps;
  return y;
}

ValueId PlanBuilder::matmul(const char* name, ValueId x, Role role) {
  const Weight& w = weight(role);
  APR_CHECK(row_elems(x) == w.n_cols, std::string(w.name));
  const ValueId y = value(name, {w.n_rows});
  append(OpKind::kMatmul, {x}, {y}).weights = {&w, nullptr};
  return y;
}

ValueId PlanBuilder::matmul_bias(const char* name, ValueId x, Role role, Role bias) {
  const ValueId y = matmul(name, x, role);
  plan_.ops.back().weights[1] = model_.find(bias, layer_idx_);
  return y;
}

PlanBuilder::Pair PlanBuilder::split_heads(const char* name, const char* gate_name, ValueId x) {
  const AttentionDesc& attn = desc_.attention;
  const ValueId q = value(name, {attn.n_heads, attn.head_dim});
  const ValueId gate = value(gate_name, {attn.n_heads, attn.head_dim});
  Op& op = append(OpKind::kSplitHeads, {x}, {q, gate});
  op.n_heads = attn.n_heads;
  op.head_dim = attn.head_dim;
  return {q, gate};
}

ValueId PlanBuilder::rope(const char* name, ValueId x, int64_t n_heads) {
  const ValueId y = value(name, {n_heads, desc_.attention.head_dim});
  Op& op = append(OpKind::kRope, {x}, {y});
  op.n_heads = n_heads;
  op.head_dim = desc_.attention.head_dim;
  op.n_rot = desc_.rope.n_rot;
  return y;
}

void PlanBuilder::kv_append(const char* name, ValueId k, ValueId v) {
  const int64_t kv_dim = desc_.attention.kv_dim();
  Op& op = append(OpKind::kKvAppend, {k, v}, {});
  op.name = full_name(name);
  op.state_idx = add_state(StateKind::kKvCache, 2 * kv_dim, 0);
  op.n_kv_heads = desc_.attention.n_kv_heads;
  op.head_dim = desc_.attention.head_dim;
}

ValueId PlanBuilder::attention(const char* name, ValueId q) {
  const AttentionDesc& attn = desc_.attention;
  const ValueId y = value(name, {attn.n_heads, attn.head_dim});
  const int state_idx = plan_.ops.back().state_idx;
  Op& op = append(OpKind::kAttention, {q}, {y});
  op.state_idx = state_idx;
  op.n_heads = attn.n_heads;
  op.n_kv_heads = attn.n_kv_heads;
  op.head_dim = attn.head_dim;
  op.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attn.head_dim)));
  return y;
}

ValueId PlanBuilder::elementwise(OpKind kind, const char* name, ValueId a, ValueId b) {
  APR_CHECK(row_elems(a) == row_elems(b), name);
  const ValueId y = value(name, plan_.values[static_cast<size_t>(a)].row_shape);
  append(kind, {a, b}, {y});
  return y;
}

ValueId PlanBuilder::sigmoid_gate(const char* name, ValueId x, ValueId gate) {
  return elementwise(OpKind::kSigmoidGate, name, x, gate);
}

ValueId PlanBuilder::add(const char* name, ValueId a, ValueId b) {
  return elementwise(OpKind::kAdd, name, a, b);
}

ValueId PlanBuilder::swiglu(const char* name, ValueId gate, ValueId up) {
  return elementwise(OpKind::kSwiglu, name, gate, up);
}

ValueId PlanBuilder::conv1d(const char* name, ValueId x, Role kernel) {
  const DeltaNetDesc& delta = desc_.delta_net;
  const ValueId y = value(name, {delta.conv_dim()});
  Op& op = append(OpKind::kConv1d, {x}, {y});
  op.weights = {&weight(kernel)};
  op.state_idx = add_state(StateKind::kConvWindow, 0, delta.conv_dim() * (delta.conv_kernel - 1));
  return y;
}

PlanBuilder::Pair PlanBuilder::l2_norm(const char* q_name, const char* k_name, ValueId qkv) {
  const DeltaNetDesc& delta = desc_.delta_net;
  const ValueId q = value(q_name, {delta.n_k_heads, delta.head_dim});
  const ValueId k = value(k_name, {delta.n_k_heads, delta.head_dim});
  Op& op = append(OpKind::kL2Norm, {qkv}, {q, k});
  op.n_heads = delta.n_k_heads;
  op.head_dim = delta.head_dim;
  op.eps = desc_.rms_eps;
  return {q, k};
}

PlanBuilder::Pair PlanBuilder::delta_gates(const char* decay_name, const char* beta_name,
                                           ValueId alpha, ValueId beta) {
  const int64_t n_heads = desc_.delta_net.n_v_heads;
  const ValueId decay = value(decay_name, {n_heads});
  const ValueId beta_out = value(beta_name, {n_heads});
  Op& op = append(OpKind::kDeltaGates, {alpha, beta}, {decay, beta_out});
  op.weights = {&weight(Role::kSsmDtBias), &weight(Role::kSsmA)};
  op.n_heads = n_heads;
  return {decay, beta_out};
}

ValueId PlanBuilder::delta_net(const char* name, ValueId q, ValueId k, ValueId qkv, Pair gates) {
  const DeltaNetDesc& delta = desc_.delta_net;
  const ValueId y = value(name, {delta.n_v_heads, delta.head_dim});
  Op& op = append(OpKind::kDeltaNet, {q, k, qkv, gates.first, gates.second}, {y});
  op.state_idx =
      add_state(StateKind::kDeltaState, 0, delta.n_v_heads * delta.head_dim * delta.head_dim);
  op.n_heads = delta.n_v_heads;
  op.n_kv_heads = delta.n_k_heads;
  op.head_dim = delta.head_dim;
  op.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(delta.head_dim)));
  return y;
}

ValueId PlanBuilder::gated_rms_norm(const char* name, ValueId x, ValueId gate, Role role) {
  const Weight& w = weight(role);
  const ValueId y = elementwise(OpKind::kGatedRmsNorm, name, x, gate);
  Op& op = plan_.ops.back();
  op.weights = {&w};
  op.head_dim = w.n_cols;
  op.n_heads = row_elems(x) / w.n_cols;
  op.eps = desc_.rms_eps;
  return y;
}

PlanBuilder::Pair PlanBuilder::moe_route(const char* ids_name, const char* weights_name,
                                         ValueId logits) {
  const ValueId ids = value(ids_name, {desc_.moe.n_used}, ValueType::kI32);
  const ValueId weights = value(weights_name, {desc_.moe.n_used});
  append(OpKind::kMoeRoute, {logits}, {ids, weights}).n_used = desc_.moe.n_used;
  return {ids, weights};
}

ValueId PlanBuilder::moe_ffn(const char* name, ValueId x, Pair route, ValueId init) {
  const ValueId y = value(name, {desc_.model_dim});
  std::vector<ValueId> inputs = {x, route.first, route.second};
  if (init >= 0) {
    inputs.push_back(init);
  }
  Op& op = append(OpKind::kMoeFfn, std::move(inputs), {y});
  op.weights = {&weight(Role::kFfnGateExps), &weight(Role::kFfnUpExps),
                &weight(Role::kFfnDownExps)};
  op.n_used = desc_.moe.n_used;
  return y;
}

ValueId PlanBuilder::row_gate(const char* name, ValueId x, ValueId gate) {
  const ValueId y = value(name, plan_.values[static_cast<size_t>(x)].row_shape);
  append(OpKind::kRowGate, {x, gate}, {y});
  return y;
}

ValueId PlanBuilder::take_rows(const char* name, ValueId x) {
  domain_ = RowDomain::kLogitRows;
  const ValueId y = value(name, plan_.values[static_cast<size_t>(x)].row_shape);
  append(OpKind::kTakeRows, {x}, {y});
  return y;
}

}  // namespace apr
