// Computes  for one token y[slot] = w[ids[slot]] x, with two stacks silu(w0 x) * (w1 x), with
//           `gate` silu(gate[slot]) * (w0 x); or, `sums`, y = (init + sum over slots of
//           w0[ids[slot]] (weights[slot] x[slot])) (+ residual)
// Reads     x, ids, weights; the chosen experts' matrices [n_rows, n_cols] in a block type T, as
//           planes
// Writes    y f32
// How       as matvec_mma. Without `sums` the chosen matrices lie one under the other, tile by
//           tile; with it side by side, so that the sum over slots is one over columns: x is staged
//           slot by slot, each to whole units, times its weight.
// Grid      any number of blocks, which share the tiles of 16 rows
// Block     kMatvecWarps warps: n_col_warps share a tile's columns, the others take other tiles;
//           two stacks: the even ones of a tile have w0, the odd ones w1
// Shared    dynamic: the staged x (staged_x.cuh), the rings, the grid; static: the warps' sums and
//           the ids
// Assumes   sm_80; two stacks: n_col_warps >= 2; n_rows % 16 == 0, n_cols % 32 == 0; x 16-byte
//           aligned; n_used at most kMostMoeMatvecUsed
// Moves     n_used * n_rows * row_bytes (twice with two stacks) + blocks * x
// Determinism  gpu_to_gpu, for one n_col_warps   Reference  cpu::reference::moe_ffn; bound: x
//           rounded to 1 / 65024 of the largest of its 32, the order of sums
#include "async_copy.cuh"
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "matvec_layout.cuh"
#include "matvec_unit.cuh"
#include "moe_params.h"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "reduce.cuh"
#include "sigmoid.cuh"
#include "staged_x.cuh"

namespace apr {

// Stages n_slots rows of x [n_cols] one behind the other, each to whole units, times its weight
// where there are weights. A barrier must follow.
template <int kGroupElems>
__device__ __forceinline__ void stage_slots(const float* x, const float* weights, int n_slots,
                                            int n_cols, const StagedX& staged) {
  const int octets_of_slot = staged_cols(n_cols) / 8;
  const int n_octets = n_slots * octets_of_slot;  // whole warps: units have 32
  const auto load = [&](int octet, float(&v)[8]) {
    const int slot = octet / octets_of_slot;
    load_octet(x + slot * n_cols, octet - slot * octets_of_slot, slot < n_slots ? n_cols : 0, v);
  };
  float next[8];
  load(threadIdx.x, next);
#pragma unroll 1
  for (int octet = threadIdx.x; octet < n_octets; octet += kStagingThreads) {
    const float weight = weights != nullptr ? weights[octet / octets_of_slot] : 1.0f;
    float v[8];
#pragma unroll
    for (int elem = 0; elem < 8; ++elem) {
      v[elem] = next[elem] * weight;
    }
    load(octet + kStagingThreads, next);
    stage_octet<kGroupElems>(staged, octet, v);
  }
}

template <class T, MatvecEpilogue kEpilogue>
__global__ void __launch_bounds__(kMatvecWarps * 32, 1)
    moe_matvec(const __grid_constant__ MoeMatvecParams p) {
  constexpr int kWeights = kEpilogue == MatvecEpilogue::kSwiglu ? 2 : 1;
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  constexpr int kSlots = ring_slots<T>();
  APR_DYNAMIC_SHARED(uint4, shared);
  __shared__ float partial[2][kMatvecWarps][kUnitRows];
  __shared__ int32_t experts[kMostMoeMatvecUsed];
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int n_cols = p.w[0].n_cols;
  const int units_of_slot = quant::units_of(n_cols);
  const int n_staged = p.sums != 0 ? p.n_used : 1;
  const int n_units = n_staged * units_of_slot;  // of a tile
  const int tiles_of_slot = p.n_rows / kUnitRows;
  const int n_tiles = p.sums != 0 ? tiles_of_slot : p.n_used * tiles_of_slot;
  const TileWarps<kWeights> mine(p.n_col_warps);
  const StagedX x(shared, n_staged * staged_cols(n_cols));
  uint8_t* const rings = reinterpret_cast<uint8_t*>(shared) +
                         staged_x_bytes(n_staged * staged_cols(n_cols), T::kGroupElems);
  const uint8_t* ring = rings + warp * kSlots * kUnitBytes;
  uint32_t* const grid = reinterpret_cast<uint32_t*>(rings + rings_bytes<T>());
  const uint32_t ring_address = shared_address(ring);
  const int tile_step = gridDim.x * mine.n_tile_slots;
  const int first_tile = blockIdx.x * mine.n_tile_slots + mine.tile_slot;

  // The walk of this warp's copies: tile by tile.
  int next_tile = first_tile, next_unit = mine.first_unit;
  const auto copy_next = [&](int slot) {
    if (next_tile < n_tiles && next_unit < n_units) {
      const int expert = experts[next_tile / tiles_of_slot + next_unit / units_of_slot];
      const int64_t tile = static_cast<int64_t>(expert) * tiles_of_slot + next_tile % tiles_of_slot;
      copy_async_by_warp<kUnitBytes>(
          ring_address + slot * kUnitBytes,
          p.w[mine.weight].data + (tile * units_of_slot + next_unit % units_of_slot) * kUnitBytes,
          lane);
      next_unit += mine.unit_step;
      if (next_unit >= n_units) {
        next_unit = mine.first_unit;
        next_tile += tile_step;
      }
    }
    copy_group_end();
  };
  const auto start_copies = [&] {
    if (threadIdx.x < p.n_used) {
      experts[threadIdx.x] = __ldcg(p.ids + threadIdx.x);
    }
    __syncthreads();
#pragma unroll
    for (int slot = 0; slot < kSlots - 1; ++slot) {
      copy_next(slot);
    }
  };
  stage_grid<T>(grid);
  if (p.ids_are_settled != 0) {
    start_copies();
  }
  grid_dependency_wait();
  grid_dependency_launch();
  if (p.ids_are_settled == 0) {
    start_copies();
  }
  stage_slots<T::kGroupElems>(p.x, p.sums != 0 ? p.weights : nullptr, n_staged, n_cols, x);
  __syncthreads();

  int slot = 0, buffer = 0;
  for (int tile = first_tile; tile < n_tiles; tile += tile_step) {
    const int row = tile * kUnitRows + lane;  // of all slots, where they lie under each other
    const bool writes = mine.joins && lane < kUnitRows;
    // What the products meet comes while they are made.
    const float gate = writes && p.gate != nullptr ? p.gate[row] : 0.0f;
    const float init = writes && p.init != nullptr ? p.init[row] : 0.0f;
    const float residual = writes && p.residual != nullptr ? p.residual[row] : 0.0f;
    multiply_tile<T>(ring, grid, x, mine.first_unit, n_units, mine.unit_step, slot, copy_next,
                     partial[buffer]);
    wait_for_tile(mine.tile_slot, p.n_col_warps);
    if (writes) {
      float value[kWeights];
      join_warps(partial[buffer], p.n_col_warps, 1.0f, value);
      if constexpr (kEpilogue == MatvecEpilogue::kSwiglu) {
        value[0] = times_sigmoid(value[0], value[0]) * value[1];
      } else if (p.gate != nullptr) {
        value[0] = times_sigmoid(gate, gate) * value[0];
      }
      p.y[row] = residual + (init + value[0]);
    }
    buffer ^= 1;
  }
}

}  // namespace apr
