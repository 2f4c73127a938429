// What one block of a matrix-vector product on tensor cores does (matvec_mma.cu, matvec_pair.cu);
// sm_80 and later. A file that includes this names its types' files first.
//
// x becomes integers of 16 bits, a scale each 32, in two int8 planes; the quants of 16 rows and the
// planes meet on tensor cores with exact integer sums, scales are applied outside, the factor of a
// norm at a row's end. The 8 columns of a product hold the two planes of 4 groups, so that each
// lane scales groups of its own. Each warp streams its share of the columns through a ring of its
// own in shared memory; the first copies start before the kernel before has ended.
#pragma once

#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "matvec_layout.cuh"
#include "matvec_unit.cuh"
#include "params.h"
#include "reduce.cuh"
#include "sigmoid.cuh"
#include "staged_x.cuh"
#include "unit_copies.cuh"

namespace apr {

// Where a lane of a joining warp puts its row of a tile, and what is added to it.
struct RowEnd {
  float* y;               // null: it has none
  const float* residual;  // or null
  float bias;
};

// The rows of `p` by block `block` of n_blocks.
template <class T, MatvecEpilogue kEpilogue>
__device__ __forceinline__ void multiply_parts(const MatvecParams& p, int block, int n_blocks) {
  constexpr int kWeights = kEpilogue == MatvecEpilogue::kSwiglu ? 2 : 1;
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  APR_DYNAMIC_SHARED(uint4, shared);
  __shared__ float partial[2][kMatvecWarps][kUnitRows];
  __shared__ __align__(16) float square_sums[kMatvecWarps];
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int n_cols = p.parts[0].w.n_cols;
  const int n_units = quant::units_of(n_cols);
  const TileWarps<kWeights> mine(p.n_col_warps);
  const StagedX x(shared, n_cols);
  uint8_t* const rings =
      reinterpret_cast<uint8_t*>(shared) + staged_x_bytes(n_cols, T::kGroupElems);
  const uint8_t* ring = rings + warp * ring_slots<T>() * kUnitBytes;
  uint32_t* const grid = reinterpret_cast<uint32_t*>(rings + rings_bytes<T>());

  const int tile_step = n_blocks * mine.n_tile_slots;
  const int first_tile = block * mine.n_tile_slots + mine.tile_slot;
  const auto part_of = [&](int tile) -> const MatvecPart& {
    return p.parts[kWeights == 2 || tile < p.parts[1].first_tile ? 0
                   : tile < p.parts[2].first_tile                ? 1
                                                                 : 2];
  };

  const auto first_of = [&](int tile) {
    const MatvecPart& part = kWeights == 2 ? p.parts[mine.weight] : part_of(tile);
    return part.w.data +
           (static_cast<int64_t>(tile - part.first_tile) * n_units + mine.first_unit) * kUnitBytes;
  };
  UnitCopies<T, decltype(first_of)> copy_next{
      shared_address(ring), mine.first_unit, n_units,   mine.unit_step,
      first_tile,           p.n_tiles,       tile_step, first_of};
  copy_next.start();
  const auto end_of = [&](int tile) {
    RowEnd end{nullptr, nullptr, 0.0f};
    if (mine.joins && tile < p.n_tiles) {
      const MatvecPart& part = part_of(tile);
      const int row = (tile - part.first_tile) * kUnitRows + lane;
      if (lane < kUnitRows && row < part.w.n_rows) {
        end.y = part.y + row;
        end.residual = p.residual != nullptr ? p.residual + row : nullptr;
        end.bias = part.bias != nullptr ? part.bias[row] : 0.0f;
      }
    }
    return end;
  };
  RowEnd end = end_of(first_tile);
  stage_grid<T>(grid);
  float held[8];
  hold_norm(p, threadIdx.x, n_cols, held);
  grid_dependency_wait();
  grid_dependency_launch();
  stage_x<T::kGroupElems>(p, n_cols, held, x, square_sums);
  __syncthreads();
  const float factor = mine.joins ? norm_factor(p, square_sums) : 1.0f;

  int slot = 0, buffer = 0;
  for (int tile = first_tile; tile < p.n_tiles; tile += tile_step) {
    // It comes while the tile is multiplied.
    const float residual = end.residual != nullptr ? *end.residual : 0.0f;
    multiply_tile<T>(ring, grid, x, mine.first_unit, n_units, mine.unit_step, slot, copy_next,
                     partial[buffer]);
    wait_for_tile(mine.tile_slot, p.n_col_warps);
    if (end.y != nullptr) {
      float value[kWeights];
      join_warps(partial[buffer], p.n_col_warps, factor, value);
      if constexpr (kEpilogue == MatvecEpilogue::kSwiglu) {
        value[0] = times_sigmoid(value[0], value[0]) * value[1];
      }
      *end.y = value[0] + end.bias + residual;
    }
    end = end_of(tile + tile_step);
    buffer ^= 1;
  }
}

}  // namespace apr
