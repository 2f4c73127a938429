// Appends ops to a plan; the forward pass (build.cpp) is written in terms of these.
#pragma once

#include <string>
#include <vector>

#include "apr/plan.h"

namespace apr {

class PlanBuilder {
 public:
  explicit PlanBuilder(const Model& model);

  // Ops appended from now on belong to `layer_idx` (-1: to none) and are named "blk.<n>.<name>".
  void set_layer(int layer_idx) { layer_idx_ = layer_idx; }
  Plan take(ValueId logits);

  ValueId embed(const char* name);  // [model_dim]
  // Over each group of weight.n_cols elements of a row of x.
  ValueId rms_norm(const char* name, ValueId x, Role weight);
  ValueId matmul(const char* name, ValueId x, Role weight);                  // [weight.n_rows]
  ValueId matmul_bias(const char* name, ValueId x, Role weight, Role bias);  // bias may be absent
  struct Pair {
    ValueId first, second;
  };
  Pair split_heads(const char* name, const char* gate_name,
                   ValueId x);                                 // q, gate: [heads, head_dim]
  ValueId rope(const char* name, ValueId x, int64_t n_heads);  // [n_heads, head_dim]
  void kv_append(const char* name, ValueId k, ValueId v);      // makes the layer's cache
  ValueId attention(const char* name, ValueId q);              // [n_heads, head_dim]
  ValueId sigmoid_gate(const char* name, ValueId x, ValueId gate);
  ValueId add(const char* name, ValueId a, ValueId b);
  ValueId swiglu(const char* name, ValueId gate, ValueId up);
  ValueId conv1d(const char* name, ValueId x, Role kernel);           // makes the layer's window
  Pair l2_norm(const char* q_name, const char* k_name, ValueId qkv);  // q, k: [k_heads, head_dim]
  Pair delta_gates(const char* decay_name, const char* beta_name, ValueId alpha, ValueId beta);
  ValueId delta_net(const char* name, ValueId q, ValueId k, ValueId qkv, Pair gates);
  ValueId gated_rms_norm(const char* name, ValueId x, ValueId gate, Role weight);
  Pair moe_route(const char* ids_name, const char* weights_name, ValueId logits);
  ValueId moe_ffn(const char* name, ValueId x, Pair route, ValueId init);  // init < 0: zeros
  ValueId row_gate(const char* name, ValueId x, ValueId gate);
  ValueId take_rows(const char* name, ValueId x);

 private:
  std::string full_name(const char* name) const;
  ValueId value(const char* name, std::vector<int64_t> row_shape, ValueType type = ValueType::kF32);
  Op& append(OpKind kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs);
  const Weight& weight(Role role) const;
  int64_t row_elems(ValueId id) const;
  ValueId elementwise(OpKind kind, const char* name, ValueId a, ValueId b);
  int add_state(StateKind kind, int64_t elems_per_position, int64_t elems);

  const Model& model_;
  const ModelDesc& desc_;
  int layer_idx_ = -1;
  RowDomain domain_ = RowDomain::kTokens;
  Plan plan_;
};

}  // namespace apr
