// Arguments of the CPU kernels: one plain struct per op kind, taken by its reference (plain loops,
// cpu/reference) and its fast form (SIMD and threads, cpu/fast) alike.
//
// Every kernel gives each row the same bits whatever the number of rows of the call, so that a
// prompt in chunks of any size equals one token at a time, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apr/quant.h"

namespace apr::cpu {

// A weight matrix, or a stack of them: [n_experts, n_rows, n_cols] in `type`.
struct MatrixRef {
  const QuantType* type;
  const std::byte* data;
  int64_t n_experts, n_rows, n_cols, row_bytes;
  const std::byte* row(int64_t row_idx) const { return data + row_idx * row_bytes; }
};

struct EmbedArgs {
  const int32_t* ids;  // [n_tokens], each in [0, table.n_rows)
  MatrixRef table;     // [vocab_rows, model_dim]
  int64_t n_tokens;
  float* y;  // [n_tokens, model_dim] f32
};

// y = x / sqrt(mean(x^2) + eps) * weight
struct RmsNormArgs {
  const float* x;       // [n_rows, dim] f32
  const float* weight;  // [dim] f32
  int64_t n_rows, dim;
  float eps;
  float* y;  // [n_rows, dim] f32
};

struct MatmulArgs {
  const float* x;     // [n_tokens, w.n_cols] f32
  MatrixRef w;        // [n_rows, n_cols]
  const float* bias;  // [w.n_rows] f32 or null
  int64_t n_tokens;
  float* y;  // [n_tokens, w.n_rows] f32
};

struct SplitHeadsArgs {
  const float* x;  // [n_tokens, n_heads, 2, head_dim] f32
  int64_t n_tokens, n_heads, head_dim;
  float *q, *gate;  // [n_tokens, n_heads, head_dim] f32 each
};

// Pairs (j, j + n_rot / 2) of each head turn by position * inv_freq[j]; elements >= n_rot are
// copied.
struct RopeArgs {
  const float* x;  // [n_tokens, n_heads, head_dim] f32
  int64_t n_tokens, n_heads, head_dim, n_rot;
  int64_t first_position;  // of row 0
  const float* inv_freq;   // [n_rot / 2] f32
  float magnitude;         // multiplies cos and sin
  float* y;                // as x; may be x
};

struct KvAppendArgs {
  const float *k, *v;  // [n_tokens, kv_dim] f32
  int64_t n_tokens, kv_dim, first_position;
  float *k_cache, *v_cache;  // [context, kv_dim] f32
};

// y[t, h] = softmax_p(scale * q[t, h] . K[p, h / group]) V[p, h / group], p <= first_position + t
struct AttentionArgs {
  const float* q;                  // [n_tokens, n_heads, head_dim] f32
  const float *k_cache, *v_cache;  // [>= first_position + n_tokens, n_kv_heads, head_dim] f32
  int64_t n_tokens, first_position, n_heads, n_kv_heads, head_dim;
  float scale;
  float* y;  // [n_tokens, n_heads, head_dim] f32
};

// y = a OP b, elementwise
struct BinaryArgs {
  const float *a, *b;  // [n_elems] f32
  int64_t n_elems;
  float* y;  // may be a or b
};

// Causal depthwise convolution over time and SiLU; window: the conv_kernel - 1 inputs before row 0.
struct Conv1dArgs {
  const float* x;       // [n_tokens, n_channels] f32
  const float* kernel;  // [n_channels, conv_kernel] f32, oldest first
  int64_t n_tokens, n_channels, conv_kernel;
  const float* window_in;  // [n_channels, conv_kernel - 1] f32, oldest first
  float* window_out;       // as window_in, another buffer
  float* y;                // [n_tokens, n_channels] f32
};

// First n_heads heads of each row of x: y = x / sqrt(sum(x^2) + eps)
struct L2NormArgs {
  const float* x;  // [n_tokens, row_stride] f32, heads at its start
  int64_t n_tokens, n_heads, head_dim, row_stride;
  float eps;
  float* y;  // [n_tokens, n_heads, head_dim] f32
};

// decay = softplus(alpha + dt_bias) * ssm_a; beta = sigmoid(beta_raw); softplus(x > 20) = x
struct DeltaGatesArgs {
  const float *alpha, *beta_raw;  // [n_tokens, n_heads] f32
  const float *dt_bias, *ssm_a;   // [n_heads] f32
  int64_t n_tokens, n_heads;
  float *decay, *beta;  // [n_tokens, n_heads] f32
};

// Per value head h with key head h % n_k_heads, per token: S *= exp(decay);
// d = (v - S k) * beta; S += d k^T; y = S q * scale. Sums ascend over the key axis.
struct DeltaNetArgs {
  const float *q, *k;  // [n_tokens, n_k_heads, head_dim] f32
  const float* v;      // [n_tokens, v_stride] f32: n_v_heads * head_dim values at each row's start
  int64_t v_stride;
  const float *decay, *beta;  // [n_tokens, n_v_heads] f32
  int64_t n_tokens, n_k_heads, n_v_heads, head_dim;
  float scale;
  const float* state_in;  // [n_v_heads, head_dim (value), head_dim (key)] f32
  float* state_out;       // as state_in, another buffer
  float* y;               // [n_tokens, n_v_heads, head_dim] f32
};

// y = x / sqrt(mean(x^2) + eps) * weight * silu(gate), per head
struct GatedRmsNormArgs {
  const float *x, *gate;  // [n_rows, dim] f32
  const float* weight;    // [dim] f32
  int64_t n_rows, dim;
  float eps;
  float* y;  // [n_rows, dim] f32
};

// Softmax over the experts, the n_used largest (ties: lowest id) in falling order, weights
// renormalised to sum 1.
struct MoeRouteArgs {
  const float* logits;  // [n_tokens, n_experts] f32
  int64_t n_tokens, n_experts, n_used;
  int32_t* ids;    // [n_tokens, n_used]
  float* weights;  // [n_tokens, n_used] f32
};

// y = init + sum over routed experts, in route order, of weight * down(silu(gate x) * (up x))
struct MoeFfnArgs {
  const float* x;        // [n_tokens, gate.n_cols] f32
  const int32_t* ids;    // [n_tokens, n_used]
  const float* weights;  // [n_tokens, n_used] f32
  MatrixRef gate, up;    // [n_experts, expert_ffn_dim, model_dim]
  MatrixRef down;        // [n_experts, model_dim, expert_ffn_dim]
  const float* init;     // [n_tokens, model_dim] f32 or null (zeros)
  int64_t n_tokens, n_used;
  float* y;  // [n_tokens, model_dim] f32
};

// y[t] = x[t] * sigmoid(g[t])
struct RowGateArgs {
  const float* x;  // [n_tokens, dim] f32
  const float* g;  // [n_tokens] f32
  int64_t n_tokens, dim;
  float* y;  // [n_tokens, dim] f32
};

struct TakeRowsArgs {
  const float* x;       // [n_tokens, dim] f32
  const int64_t* rows;  // [n_rows]
  int64_t n_rows, dim;
  float* y;  // [n_rows, dim] f32
};

}  // namespace apr::cpu
