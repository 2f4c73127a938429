// Arguments of the kernels: one plain struct each, read by g++ and NVRTC alike and passed by value.
#pragma once

#include "platform.cuh"

namespace apr {

// y = x / sqrt(mean(x^2) + eps) * weight
struct RmsNormParams {
  const float* x;       // [n_rows, dim] f32
  const float* weight;  // [dim] f32
  float* y;             // [n_rows, dim] f32; may be x
  int32_t dim;
  float eps;
};

// A quantised matrix in device memory: [n_rows, n_cols], or a stack of them counted in n_rows.
struct WeightRef {
  const uint8_t* data;  // raw blocks or planes (quant/device.cuh), 16-byte aligned
  int64_t n_blocks;     // of the whole tensor
  int32_t n_rows, n_cols;
};

// What a matvec does with its products before it stores them.
enum class MatvecEpilogue : int32_t { kNone, kSwiglu };

// y[t] = w (norm(x[t])) (+ bias) (+ residual[t]); with kSwiglu silu(w x) * (w2 x)
struct MatvecParams {
  const float* x;            // [n_tokens, n_cols] f32
  const float* norm_weight;  // [n_cols] f32 of an RMS norm applied to x first, or null
  WeightRef w, w2;           // w2: kSwiglu alone
  const float* bias;         // [n_rows] f32 or null
  const float* residual;     // [n_tokens, n_rows] f32 or null; may be y
  float* y;                  // [n_tokens, n_rows] f32
  int64_t y_stride;          // elements from one token's row of y (and residual) to the next
  int32_t n_tokens;          // 1 to 8
  float eps;                 // of the norm
};

// What changes from step to step of a sequence; kernels read it from device memory, so that one
// captured graph serves every step.
struct StepState {
  int32_t position;  // of the step's first token
  int32_t n_tokens;  // of this step
};

// Norms, rotates and appends the projections of a step: q and k heads get their RMS norm (null:
// none) and rotary embedding, k and v go to the cache at the step's positions.
struct QkRopeAppendParams {
  const StepState* step;
  const float* q;         // [n_tokens, q_stride] f32: n_heads heads of head_dim, head_stride apart
  const float* k;         // [n_tokens, kv_stride] f32: n_kv_heads heads
  const float* v;         // [n_tokens, kv_stride] f32
  const float* q_norm;    // [head_dim] f32 or null
  const float* k_norm;    // [head_dim] f32 or null
  const float* inv_freq;  // [n_rot / 2] f32
  float* q_out;           // [n_tokens, n_heads, head_dim] f32
  void *k_cache, *v_cache;               // [context, n_kv_heads, head_dim] f16 or f32
  int64_t q_stride, k_stride, v_stride;  // elements from one token to the next
  int32_t q_head_stride;                 // elements from one q head to the next
  int32_t n_heads, n_kv_heads, head_dim, n_rot;
  float eps, magnitude;
};

// Attention of each token of a step over the cache, split over the keys.
struct AttentionDecodeParams {
  const StepState* step;
  const float* q;                 // [n_tokens, n_heads, head_dim] f32
  const void *k_cache, *v_cache;  // [context, n_kv_heads, head_dim] f16 or f32
  const float* gate;   // sigmoid(gate) multiplies the result: [n_tokens, gate_token_stride] or null
  float* y;            // [n_heads, head_dim] f32
  float* partial;      // [n_tokens, n_kv_heads, n_splits, group, head_dim + 2] f32
  uint32_t* counters;  // [n_tokens, n_kv_heads], zero before and after
  int64_t gate_token_stride;  // elements from one token's gates to the next
  int32_t gate_stride;        // elements from one head's gate to the next
  int32_t n_heads, n_kv_heads;
  float scale;
};

// out = w dequantised; w.n_cols counts whole blocks, n_cols the columns that are stored.
struct DequantParams {
  WeightRef w;
  void* out;          // [n_rows of the launch, n_cols] f32 or f16
  int32_t first_row;  // of the launch
  int32_t n_cols;     // <= w.n_cols
  float scale;        // f16 alone: a power of two
};

// y[t] = token_embd[ids[t]]
struct EmbedParams {
  const int32_t* ids;  // [n_tokens]
  WeightRef table;     // [vocab_rows, model_dim]
  float* y;            // [n_tokens, model_dim] f32
};

// y = a OP b, elementwise; rows of b may be further apart than those of a.
struct BinaryParams {
  const float *a, *b;  // [n_rows, n_cols] f32
  float* y;            // [n_rows, n_cols] f32; may be a or b
  int64_t n_elems;
};

// Rows to f16, each scaled by a power of two so that its largest value lies in [2^13, 2^14).
struct ScaleRowsParams {
  const float* x;  // [n_rows, n_cols] f32
  uint16_t* y;     // [n_rows, n_cols] f16
  float* undo;     // [n_rows] f32: what undoes the scaling
  int32_t n_cols;
};

// y[r] = x[r] * undo[r] * undo_weight (+ bias)
struct UnscaleRowsParams {
  const float* x;     // [n_rows, n_cols] f32
  const float* undo;  // [n_rows] f32
  const float* bias;  // [n_cols] f32 or null
  float* y;           // [n_rows, n_cols] f32; may be x
  float undo_weight;
  int32_t n_cols;
};

// Softmax of the rows of scores, causal: row r sees keys [0, first_position + r].
struct SoftmaxParams {
  float* scores;           // [n_heads, n_rows, n_keys] f32, in place
  int64_t head_stride;     // elements from one head to the next
  int32_t first_position;  // of row 0
  int32_t n_keys;          // elements of a row
};

}  // namespace apr
