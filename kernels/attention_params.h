// Arguments of the attention kernels, as in params.h.
#pragma once

#include "params.h"

namespace apr {

// The keys and values of a layer's cache.
struct KvCacheRef {
  void *k, *v;  // [context, n_kv_heads, head_dim] f16 or f32
};

// The query heads of a step: head h of token t at q + t * token_stride + h * head_stride.
struct QueryRef {
  float* q;              // head_dim f32 each, 16-byte aligned
  int64_t token_stride;  // elements, a multiple of 4
  int32_t head_stride;
};

// What multiplies the result of attention: sigmoid(gate); as QueryRef.
struct AttentionGate {
  const float* gate;  // null: no gate
  int64_t token_stride;
  int32_t head_stride;
};

// Norms, rotates and appends the projections of a step: q and k heads get their RMS norm (null:
// none) and rotary embedding, q in place; k and v go to the cache at the step's positions. With
// products, whose first columns q then is, they are read as ProductColumns.
struct QkRopeAppendParams {
  const StepState* step;
  QueryRef q;
  const float *k, *v;     // [n_tokens, n_kv_heads, head_dim] f32; null with products
  const float* q_norm;    // [head_dim] f32 or null
  const float* k_norm;    // [head_dim] f32 or null
  const float* inv_freq;  // [n_rot / 2] f32
  KvCacheRef cache;
  int32_t n_heads, n_kv_heads, head_dim, n_rot;
  float eps, magnitude;
  Products products;          // data null: none
  ProductColumns columns[3];  // of q, k, v
};

// y[t, h] = softmax_p(scale * q[t, h] . K[p, h / group]) V[p, h / group] (* sigmoid(gate[t, h]))
// for the keys p of a step's past and its own up to t; group = n_heads / n_kv_heads
struct AttentionPrefillParams {
  const StepState* step;
  QueryRef q;
  KvCacheRef cache;
  AttentionGate gate;
  float* y;  // [n_tokens, n_heads, head_dim] f32
  int32_t n_heads, n_kv_heads;
  float scale;
};

// As AttentionPrefillParams, split over the keys.
struct AttentionDecodeParams {
  const StepState* step;
  QueryRef q;
  KvCacheRef cache;
  AttentionGate gate;
  float* y;            // [n_tokens, n_heads, head_dim] f32
  float* partial;      // [n_tokens, n_kv_heads, n_splits, group, head_dim + 2] f32
  uint32_t* counters;  // [n_tokens, n_kv_heads], zero before and after
  int32_t n_heads, n_kv_heads;
  float scale;
};

// As AttentionPrefillParams for up to 8 tokens, split over the keys. Of `in`, attention_split reads
// step, q (normed and rotated), cache and numbers of heads alone; attention_split_fused does all
// that QkRopeAppendParams says but for q, which stays as it was.
struct AttentionSplitParams {
  AttentionGate gate;
  float* y;            // [n_tokens, n_heads, head_dim] f32
  float* partial;      // [n_tokens, n_kv_heads, n_splits, group, head_dim] f32, 16-byte aligned
  float* stats;        // [n_tokens, n_kv_heads, n_splits, group, 2] f32: largest exponent, sum
  uint32_t* counters;  // [n_tokens, n_kv_heads], zero before and after
  float scale;
  QkRopeAppendParams in;  // last: its end is not read, and a first read takes long
};

// Softmax of the rows of scores, causal: row r sees keys [0, first_position + r], the others get
// weight zero.
struct SoftmaxParams {
  float* scores;           // [n_heads, n_rows, n_keys] f32, in place
  int64_t head_stride;     // elements from one head to the next
  int32_t first_position;  // of row 0
  int32_t n_keys;          // elements of a row
};

// y *= sigmoid(gate)
struct AttentionGateParams {
  float* y;  // [n_tokens, n_heads, head_dim] f32
  AttentionGate gate;
  int32_t n_heads, head_dim;
};

}  // namespace apr
