// How the products of the experts are computed, and what scratch that takes: plain host code, which
// needs no GPU.
#pragma once

#include <cstdint>
#include <span>

#include "apr/model.h"

namespace apr::cuda {

constexpr int64_t kMoeAlignBytes = 256;  // of each router's copy

// How the products of a stack of experts' matrices are computed.
enum class MoePath {
  kFma,          // f32 in the order of the reference
  kTensorCores,  // 16-bit operands: matvec of one token, grouped products of more
};

// Whether a weight is the matrices of all experts.
bool is_expert_stack(const Weight& weight);

// kFma for `exact`, a plain type, without tensor cores (before sm_80), and for shapes that they do
// not take: rows % 16, columns % 32.
MoePath choose_moe_path(const Weight& stack, bool exact, bool tensor_cores);

// Tiles of pairs (of a token and an expert) of a chunk, at most.
int64_t most_moe_tiles(int64_t n_pairs, int64_t n_experts);

// Bytes of what Moe allocates for chunks of max_rows tokens; all zero without experts in `weights`.
struct MoeSizes {
  uint64_t routers = 0;  // f32 copies of those that are not f32
  uint64_t largest = 0, logits = 0, arrived = 0;
  uint64_t pairs = 0, first = 0, tiles = 0, n_tiles = 0;
  uint64_t hidden = 0, parts = 0;
  uint64_t halves = 0, undo = 0;
};
MoeSizes moe_sizes(std::span<const Weight> weights, const MoeDesc& moe, bool exact,
                   bool tensor_cores, int64_t max_rows);

}  // namespace apr::cuda
