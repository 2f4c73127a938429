// Which pairs a block of a grouped product has.
#pragma once

#include "moe_params.h"
#include "sigmoid.cuh"

namespace apr {

// Tile `idx` of the groups, with no pairs past the last one; without groups that of slot `idx`.
__device__ __forceinline__ MoeTile tile_of(const MoeProductParams& p, int idx) {
  if (p.groups.tiles == nullptr) {
    return {p.ids[idx], idx, 1};
  }
  return idx < *p.groups.n_tiles ? p.groups.tiles[idx] : MoeTile{0, 0, 0};
}

// The pair at `place` of a tile.
__device__ __forceinline__ int pair_of(const MoeProductParams& p, const MoeTile& tile, int place) {
  return p.groups.tiles == nullptr ? tile.first : p.groups.pairs[tile.first + place];
}

// What is stored for a product: the epilogue.
__device__ __forceinline__ float gated(const MoeProductParams& p, int64_t at, float value) {
  if (p.gate == nullptr) {
    return value;
  }
  const float gate = p.gate[at];
  return times_sigmoid(gate, gate) * value;
}

}  // namespace apr
