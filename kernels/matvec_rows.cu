// Computes  products[token, first_col + row] = x[token] w[row] * 2^e of the weights, for up to
//           8 kTiles tokens
// Reads     w [n_rows, n_cols] of one block type T, as planes, once; x [n_tokens, n_cols] as f16
// Writes    products f32, of each split of the columns apart: whoever reads them adds them up
// How       as matvec_mma: each warp streams its share of the columns of 16 rows through a ring of
//           its own and waits for no other before a tile ends. A block has the x of its split of
//           the columns in shared memory.
// Grid      (any number of blocks, which share the tiles of 16 rows, n_splits)
// Block     kMatvecWarps warps: n_col_warps share a tile's columns, the others take other tiles
// Shared    dynamic: the rings, the grid and what matvec_rows_layout.cuh adds
// Assumes   sm_80; n_cols % 8 == 0; x 16-byte aligned; n_tokens at most 8 kTiles; at most as many
//           splits as units of 256 columns
// Moves     weights + blocks of a split * n_tokens * n_cols * 2 of x from cache + n_splits *
//           n_tokens * n_rows * 4
// Determinism  gpu_to_gpu, for one n_splits and n_col_warps
// Reference dot products in f64 (tests/gpu_tier_test.cpp); bound: x rounded to 11 bits
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "matvec_rows_params.h"
#include "matvec_unit.cuh"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "matvec_rows_unit.cuh"
#include "power_of_two.cuh"
#include "unit_copies.cuh"

namespace apr {

template <class T, int kTiles>
__global__ void __launch_bounds__(kMatvecWarps * 32, 1)
    matvec_rows(const __grid_constant__ MatvecRowsParams p) {
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  constexpr int kSlots = ring_slots<T>();
  APR_DYNAMIC_SHARED(uint8_t, shared);
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int g = lane / 4, t = lane % 4;
  const int n_units = quant::units_of(p.n_cols);
  const int begin = static_cast<int>(blockIdx.y) * n_units / p.n_splits;
  const int end = static_cast<int>(blockIdx.y + 1) * n_units / p.n_splits;
  const int first_unit = begin + warp % p.n_col_warps;
  const int tile_slot = warp / p.n_col_warps, n_tile_slots = kMatvecWarps / p.n_col_warps;
  const int first_warp = tile_slot * p.n_col_warps;  // of this warp's tiles
  const int tile_step = gridDim.x * n_tile_slots;
  const int first_tile = blockIdx.x * n_tile_slots + tile_slot;

  const uint8_t* ring = shared + warp * kSlots * kUnitBytes;
  uint32_t* const grid = reinterpret_cast<uint32_t*>(shared + rings_bytes<T>());
  float* const joined = reinterpret_cast<float*>(shared + rings_and_grid_bytes<T>());
  constexpr int kSumsElems = matvec_rows_sums_bytes(kTiles) / 4;
  StagedRows<kTiles> staged;
  staged.x = reinterpret_cast<uint8_t*>(joined + kMatvecWarps * kSumsElems);
  staged.x_bytes = matvec_rows_x_bytes(end - begin);
  staged.sums = reinterpret_cast<float*>(staged.x + p.n_tokens * staged.x_bytes);

  const auto first_of = [&](int tile) {
    const ProductPart& part = part_of(p, tile);
    return part.data +
           (static_cast<int64_t>(tile - part.first_tile) * n_units + first_unit) * kUnitBytes;
  };
  UnitCopies<T, decltype(first_of)> copy_next{
      shared_address(ring), first_unit, end,       p.n_col_warps,
      first_tile,           p.n_tiles,  tile_step, first_of};
  copy_next.start();
  stage_grid<T>(grid);
  grid_dependency_wait();
  grid_dependency_launch();
  stage_rows<T>(p.x, p.n_cols, p.n_tokens, begin, end - begin, staged);
  __syncthreads();

  // A token past the end has another's x; its products are not stored.
  const uint8_t* x_of_token[kTiles];
#pragma unroll
  for (int tokens = 0; tokens < kTiles; ++tokens) {
    const int token = min(kTokenTile * tokens + g, p.n_tokens - 1);
    x_of_token[tokens] = staged.x + token * staged.x_bytes + 8 * t;
  }

  int slot = 0;
  for (int tile = first_tile; tile < p.n_tiles; tile += tile_step) {
    const ProductPart& part = part_of(p, tile);
    const float up = power_to_f16(*part.largest).up;
    float sums[kTiles][4] = {};
#pragma unroll 1
    for (int unit = first_unit; unit < end; unit += p.n_col_warps) {
      copy_groups_wait<kSlots - 2>();
      __syncwarp();
      copy_next(slot == 0 ? kSlots - 1 : slot - 1);
      const uint8_t* x_of[kTiles];
#pragma unroll
      for (int tokens = 0; tokens < kTiles; ++tokens) {
        x_of[tokens] = x_of_token[tokens] + (unit - begin) * (quant::kUnitCols * 2);
      }
      const int first_group = (unit - begin) * (quant::kUnitCols / T::kGroupElems);
      multiply_unit_rows<T, kTiles>(ring + slot * kUnitBytes, grid, x_of,
                                    staged.sums + first_group * staged.kSumsPitch + 2 * t, sums);
      slot = slot == kSlots - 1 ? 0 : slot + 1;
    }

    if (tile != first_tile) {
      wait_for_tile(tile_slot, p.n_col_warps);  // all have read the sums of the tile before
    }
    float* const mine = joined + warp * kSumsElems + lane;
#pragma unroll
    for (int tokens = 0; tokens < kTiles; ++tokens) {
#pragma unroll
      for (int elem = 0; elem < 4; ++elem) {
        mine[(4 * tokens + elem) * kWarpSize] = sums[tokens][elem];
      }
    }
    wait_for_tile(tile_slot, p.n_col_warps);
    for (int idx = warp - first_warp; idx < 4 * kTiles; idx += p.n_col_warps) {
      const int row = (tile - part.first_tile) * quant::kUnitRows + g + idx % 4 / 2 * 8;
      const int token = idx / 4 * kTokenTile + 2 * t + idx % 2;
      float sum = 0.0f;
      for (int from = 0; from < p.n_col_warps; ++from) {  // in their order
        sum += joined[(first_warp + from) * kSumsElems + idx * kWarpSize + lane];
      }
      if (row < part.n_rows && token < p.n_tokens) {
        p.products[static_cast<int>(blockIdx.y) * p.split_stride + token * p.stride +
                   part.first_col + row] = sum * up;
      }
    }
  }
}

}  // namespace apr
