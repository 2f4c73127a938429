// The plan: the forward pass of one model as a flat list of semantic ops, written once
// (plan/build.cpp) and read by lowering, the memory check, the executors and the parity tools.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apr/model.h"

namespace apr {

enum class OpKind {
  kEmbed,         // y[t] = token_embd[ids[t]]
  kRmsNorm,       // y = x / sqrt(mean(x^2) + eps) * w, over each group of head_dim elements
  kMatmul,        // y[t] = w x[t] (+ bias)
  kSplitHeads,    // [n_heads, 2, head_dim] -> q, gate
  kRope,          // rotates pairs (j, j + n_rot / 2) of each head
  kKvAppend,      // k, v -> cache rows [position]
  kAttention,     // causal grouped-query attention over the cache
  kSigmoidGate,   // y = x * sigmoid(gate)
  kAdd,           // y = a + b
  kSwiglu,        // y = silu(gate) * up
  kConv1d,        // causal depthwise convolution over time, then SiLU; carries a window
  kL2Norm,        // q, k heads: x / sqrt(sum(x^2) + eps)
  kDeltaGates,    // decay = softplus(alpha + dt_bias) * ssm_a; beta = sigmoid(beta)
  kDeltaNet,      // gated delta rule; carries a state
  kGatedRmsNorm,  // y = rms_norm(x) * w * silu(gate), per head
  kMoeRoute,      // softmax, top-k, weights renormalised
  kMoeFfn,        // y = init + sum of weighted experts, in route order
  kRowGate,       // y[t] = x[t] * sigmoid(g[t]), one g per row
  kTakeRows,      // rows asked for by the caller
};

const char* op_kind_name(OpKind kind);  // "rms_norm"

enum class RowDomain { kTokens, kLogitRows };  // one row per token of the chunk / per row asked for
enum class ValueType { kF32, kI32 };

// An intermediate result: n rows of row_elems elements.
struct Value {
  std::string name;  // "blk.3.attn_q"
  RowDomain rows = RowDomain::kTokens;
  std::vector<int64_t> row_shape;  // slowest axis first
  ValueType type = ValueType::kF32;
  int64_t row_elems() const;
};
using ValueId = int;  // index into Plan::values

enum class StateKind { kKvCache, kConvWindow, kDeltaState };

// Memory of a sequence that outlives a step.
struct StateSpec {
  StateKind kind;
  int layer_idx;
  int64_t elems_per_position = 0;  // kv cache: K and V of one position, kv_dim elements each
  int64_t elems = 0;               // recurrent state, f32, whatever the length
};

// One op. Which fields a kind uses stands at the builder's append functions.
struct Op {
  OpKind kind{};
  int layer_idx = -1;
  std::string name;  // of its output, unique: "blk.3.attn_q"
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<const Weight*> weights;  // null entries: absent optional weights
  int state_idx = -1;                  // into Plan::states
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0, n_rot = 0, n_used = 0;
  float eps = 0.0F, scale = 0.0F;
};

struct Plan {
  const Model* model = nullptr;
  std::vector<Value> values;
  std::vector<StateSpec> states;
  std::vector<Op> ops;
  ValueId logits = -1;  // [n_logit_rows, vocab_rows] f32
};

// Builds the forward pass of `model`, which must outlive the plan.
Plan build_plan(const Model& model);

// One op a line: index, name, kind, shapes, weight types, bytes of weights read.
std::string print_plan(const Plan& plan);

}  // namespace apr
