// Arguments of the mixture-of-experts kernels. A pair is a token and one of its chosen experts:
// pair = token * n_used + slot. A stack is the matrices of all experts, [n_experts, n_rows,
// n_cols].
#pragma once

#include "params.h"

namespace apr {

// The scores of all experts for each token, and the n_used best of them.
struct MoeRouterParams {
  const float* x;            // [n_tokens, n_cols] f32
  const float* norm_weight;  // [n_cols] f32 of an RMS norm applied to x first, or null
  float* normed;             // [n_tokens, n_cols] f32; null without a norm
  const float* w;            // [n_experts, n_cols] f32
  float* logits;             // [n_tokens, n_experts] f32
  int32_t* ids;              // [n_tokens, n_used], the best first
  float* weights;            // [n_tokens, n_used] f32: softmax of the chosen logits
  uint32_t* arrived;         // [token tiles] blocks with their logits; zero before and after
  int32_t n_tokens, n_cols, n_experts, n_used;
  float eps;  // of the norm
};

// Pairs of one expert that a block multiplies together.
struct MoeTile {
  int32_t expert;
  int32_t first, n_pairs;  // of MoeGroups::pairs
};

// The pairs of a chunk, grouped by expert.
struct MoeGroups {
  int32_t* pairs;    // [n_pairs], by expert, those of an expert ascending
  int32_t* first;    // [n_experts + 1] first place of an expert in `pairs`
  MoeTile* tiles;    // at most ceil(n_pairs / tile_pairs) + min(n_experts, n_pairs)
  int32_t* n_tiles;  // [1]
};

struct MoeGroupParams {
  const int32_t* ids;  // [n_pairs]
  MoeGroups to;
  uint32_t* arrived;  // [1] blocks that are done; zero before and after
  int32_t n_pairs, n_experts;
  int32_t tile_pairs;  // of a tile at most
};

// y[pair] = w[expert of the pair] x[row of the pair]; with `gate` silu(gate[pair]) * that
struct MoeProductParams {
  WeightRef w;           // a stack, counted in n_rows
  int32_t n_rows;        // of an expert
  MoeGroups groups;      // or, where groups.tiles is null, the pairs of one token:
  const int32_t* ids;    // [n_used]
  const float* x;        // [rows, w.n_cols] f32: moe_fma
  F16Rows x_f16;         // [rows, w.n_cols]: moe_gemm
  int32_t pairs_of_row;  // row of a pair = pair / pairs_of_row
  const float* largest;  // max |weight| of the stack: moe_gemm
  const float* gate;     // [pairs, n_rows] f32, may be y; or null
  float* y;              // [pairs, n_rows] f32
  int32_t batch_pairs;   // moe_fma: pairs in shared memory at once, at most kMoeFmaPairs
};

constexpr int kMoeFmaPairs = 8;

// y[token] = (init[token] + sum over its pairs of weight * part) (+ residual[token])
struct MoeCombineParams {
  const float* parts;     // [n_tokens, n_used, n_cols] f32
  const float* weights;   // [n_tokens, n_used] f32
  const float* init;      // [n_tokens, n_cols] f32 or null
  const float* residual;  // [n_tokens, n_cols] f32 or null, may be y
  float* y;               // [n_tokens, n_cols] f32
  int32_t n_used, n_cols;
};

constexpr int kMostMoeMatvecUsed = 64;

// Products of one token with its chosen experts on tensor cores.
//   sums == 0   y[slot] = w[ids[slot]] x; with two stacks silu(w0 x) * (w1 x); with `gate`
//               silu(gate[slot]) * (w0 x)
//   sums == 1   y = (init + sum over slots of w0[ids[slot]] (weights[slot] x[slot])) (+ residual)
struct MoeMatvecParams {
  WeightRef w[2];         // stacks of one type and shape, counted in n_rows; w[1]: with two
  const float* x;         // [n_cols] f32; sums: [n_used, n_cols]
  const int32_t* ids;     // [n_used]
  const float* weights;   // [n_used] f32; sums alone
  const float* gate;      // [n_used, n_rows] f32, may be y; or null
  const float* init;      // [n_rows] f32 or null; sums alone
  const float* residual;  // [n_rows] f32 or null, may be y; sums alone
  float* y;               // [n_used, n_rows] f32; sums: [n_rows]
  int32_t n_rows;         // of an expert, a multiple of 16
  int32_t n_used;         // at most kMostMoeMatvecUsed
  int32_t n_col_warps;    // as of MatvecParams
  int32_t sums;
  // The kernel before this one read `ids` after its own dependency wait: they may be read early.
  int32_t ids_are_settled;
};

}  // namespace apr
