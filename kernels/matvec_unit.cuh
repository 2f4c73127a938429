// The products of one unit of a weight matrix (quant/device.cuh) with a staged x, by one warp
// (sm_80 and later).
#pragma once

#include "async_copy.cuh"
#include "matvec_layout.cuh"
#include "mma.cuh"
#include "named_barrier.cuh"
#include "staged_x.cuh"

namespace apr {

using quant::kUnitCols;
using quant::kUnitRows;

// Copies a type's grid to shared memory, by the whole block. A barrier must follow.
template <class T>
__device__ __forceinline__ void stage_grid([[maybe_unused]] uint32_t* to) {
  if constexpr (quant::grid_words<T>() > 0) {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(T::grid().entry);
    for (int word = threadIdx.x; word < quant::grid_words<T>(); word += blockDim.x) {
      to[word] = from[word];
    }
  }
}

// Adds to sums[h] the products of rows g and g + 8 of a unit in shared memory, this lane's groups.
template <class T>
__device__ __forceinline__ void multiply_unit(const uint8_t* unit_bytes, const uint32_t* grid,
                                              const StagedX& x, int unit, float (&sums)[2]) {
  constexpr int kGroupElems = T::kGroupElems;
  constexpr int kGroups = kUnitCols / kGroupElems;  // of a row
  constexpr int kSets = kGroups / 4;                // of four groups, one accumulator each
  constexpr int kProducts = 8 / kSets;              // of a set; a product has 32 columns
  constexpr int kWords = kGroupElems / 4;
  const int lane = threadIdx.x % kWarpSize;
  const int g = lane / 4, t = lane % 4;
  const int column_group = g / 2;  // this lane's group of a set, as a column of b; g % 2: its plane
  const uint32_t* plane =
      reinterpret_cast<const uint32_t*>(x.planes + g % 2 * x.plane_bytes + unit * kUnitCols) + t;
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    uint32_t x_words[kWords / 4];
#pragma unroll
    for (int word = 0; word < kWords / 4; ++word) {
      x_words[word] = plane[(4 * set + column_group) * kWords + 4 * word];
    }
    int32_t d[4] = {0, 0, 0, 0};
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
      const int elem = 32 * (set * kProducts + product);  // in the unit; known to the compiler
      const auto top = quant::unit_block<T>(unit_bytes, g, elem / T::kBlockElems, grid);
      const auto bottom = quant::unit_block<T>(unit_bytes, g + 8, elem / T::kBlockElems, grid);
      const int quartet = elem % T::kBlockElems / 4 + t;
      const uint32_t a[4] = {T::quants4(top, quartet), T::quants4(bottom, quartet),
                             T::quants4(top, quartet + 4), T::quants4(bottom, quartet + 4)};
      uint32_t b[2];
      if constexpr (kGroupElems == 32) {
        b[0] = column_group == product ? x_words[0] : 0u;
        b[1] = column_group == product ? x_words[1] : 0u;
      } else {
        b[0] = column_group == 2 * product ? x_words[0] : 0u;
        b[1] = column_group == 2 * product + 1 ? x_words[0] : 0u;
      }
      mma_16x8x32(d, a, b);
    }
    // Columns 2t and 2t + 1 of the products are the planes of this lane's group, of both rows.
    const int group = 4 * set + t;
    const int group_of_row = unit * kGroups + group;
    const float x_scale = x.scales[group_of_row * kGroupElems / kScaleElems];
    const int x_sum = T::kHasOffset || T::kQuantBias != 0 ? x.sums[group_of_row] : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const quant::PlanesBlock<T> from{unit_bytes, g + 8 * half,
                                       group * kGroupElems / T::kBlockElems};
      const quant::Affine affine =
          T::affine(from, group * kGroupElems % T::kBlockElems / kGroupElems);
      const int product = d[2 * half] * 256 + d[2 * half + 1] - T::kQuantBias * x_sum;
      float value = affine.scale * static_cast<float>(product);
      if constexpr (T::kHasOffset) {
        value += affine.offset * static_cast<float>(x_sum);
      }
      sums[half] += x_scale * value;
    }
  }
}

// The warps of a block: n_col_warps, a power of two, share the columns of a tile of 16 rows, the
// others take other tiles. With two weights the even ones have the first, the odd ones the second.
template <int kWeights>
struct TileWarps {
  int tile_slot, n_tile_slots;
  int weight, first_unit, unit_step;  // of this warp
  bool joins;                         // the others' sums

  __device__ __forceinline__ explicit TileWarps(int n_col_warps) {
    const int warp = threadIdx.x / kWarpSize, shift = 31 - __clz(n_col_warps);
    tile_slot = warp >> shift;
    n_tile_slots = kMatvecWarps >> shift;
    weight = warp % kWeights;
    first_unit = (warp & (n_col_warps - 1)) / kWeights;
    unit_step = n_col_warps / kWeights;
    joins = (warp & (n_col_warps - 1)) == 0;
  }
};

// The sums of a tile's 16 rows, by each warp of a block.
using TileSums = float[kMatvecWarps][kUnitRows];

// This warp's share of a tile from its `ring`, which copy_next(slot) refills as slots fall free;
// `slot` goes on from tile to tile.
template <class T, class CopyNext>
__device__ __forceinline__ void multiply_tile(const uint8_t* ring, const uint32_t* grid,
                                              const StagedX& x, int first_unit, int n_units,
                                              int unit_step, int& slot, CopyNext& copy_next,
                                              TileSums& partial) {
  constexpr int kSlots = ring_slots<T>();
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  float sums[2] = {0.0f, 0.0f};
#pragma unroll 1
  for (int unit = first_unit; unit < n_units; unit += unit_step) {
    copy_groups_wait<kSlots - 2>();
    __syncwarp();
    copy_next(slot == 0 ? kSlots - 1 : slot - 1);
    multiply_unit<T>(ring + slot * quant::unit_bytes<T>(), grid, x, unit, sums);
    slot = slot == kSlots - 1 ? 0 : slot + 1;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // over the lanes of one row
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
  }
  if (lane % 4 == 0) {
    partial[warp][lane / 4] = sums[0];
    partial[warp][lane / 4 + 8] = sums[1];
  }
}

// Waits for the warps of a tile alone. Where the next tile's sums go to another buffer one such
// barrier a tile is enough.
__device__ __forceinline__ void wait_for_tile(int tile_slot, int n_col_warps) {
  if (n_col_warps == 1) {
    __syncwarp();
  } else {
    named_barrier(1 + tile_slot, n_col_warps * kWarpSize);
  }
}

// `factor` times the sums of row `lane` of a tile over its warps, of which this is the first, in
// their order, for each weight.
template <int kWeights>
__device__ __forceinline__ void join_warps(const TileSums& partial, int n_col_warps, float factor,
                                           float (&value)[kWeights]) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  float parts[kMatvecWarps];  // all loaded before the first is added
#pragma unroll
  for (int from = 0; from < kMatvecWarps; ++from) {
    parts[from] = from < n_col_warps ? partial[warp + from][lane] : 0.0f;
  }
#pragma unroll
  for (int weight = 0; weight < kWeights; ++weight) {
    value[weight] = 0.0f;
#pragma unroll
    for (int from = weight; from < kMatvecWarps; from += kWeights) {
      value[weight] += parts[from];
    }
    value[weight] *= factor;
  }
}

}  // namespace apr
