// The products of one unit of a weight matrix (quant/device.cuh) with up to 16 staged tokens, by
// one warp (sm_80 and later). Weights are the rows of the tensor-core product, exact as f16, tokens
// its columns, 8 at a time; scales and offsets meet the sums of a group.
//
// The columns that one product of 16 meets may come in any order, the same for both operands: lane
// t of four has weights 4t to 4t + 3 of each 16, the four that one word decodes to.
#pragma once

#include "f16_quants.cuh"
#include "matvec_rows_layout.cuh"
#include "mma.cuh"
#include "reduce.cuh"

namespace apr {

// The x of a block's columns in shared memory.
template <int kTiles>
struct StagedRows {
  static constexpr int kSumsPitch = kTokenTile * kTiles;
  uint8_t* x;   // [n_tokens, x_bytes]: f16
  float* sums;  // [groups, kSumsPitch]: of a group's x, of each token
  int x_bytes;
};

// Stages columns [first_unit * 256, + n_units * 256) of x by the whole block; those past the end
// are zero. A barrier must follow.
template <class T, int kTiles>
__device__ __forceinline__ void stage_rows(const uint16_t* x, int n_cols, int n_tokens,
                                           int first_unit, int n_units,
                                           const StagedRows<kTiles>& staged) {
  constexpr int kAtOnce = 4;  // a unit of a token each, for a warp
  constexpr int kLanesOfGroup = T::kGroupElems / 8;
  constexpr int kGroups = quant::kUnitCols / T::kGroupElems;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int n_pieces = n_tokens * n_units;
  for (int first = warp; first < n_pieces; first += kAtOnce * kMatvecWarps) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int idx = 0; idx < kAtOnce; ++idx) {
      const int piece = first + idx * kMatvecWarps;
      const int token = piece / n_units;
      const int col = (first_unit + piece % n_units) * quant::kUnitCols + 8 * lane;
      v[idx] = make_uint4(0u, 0u, 0u, 0u);
      if (piece < n_pieces && col < n_cols) {
        v[idx] = *reinterpret_cast<const uint4*>(x + static_cast<int64_t>(token) * n_cols + col);
      }
    }
#pragma unroll
    for (int idx = 0; idx < kAtOnce; ++idx) {
      const int piece = first + idx * kMatvecWarps;
      if (piece < n_pieces) {
        const int token = piece / n_units, unit = piece % n_units;
        *reinterpret_cast<uint4*>(staged.x + token * staged.x_bytes + unit * quant::kUnitCols * 2 +
                                  16 * lane) = v[idx];
        if constexpr (T::kHasOffset) {
          const uint32_t pairs[4] = {v[idx].x, v[idx].y, v[idx].z, v[idx].w};
          float sum = 0.0f;
#pragma unroll
          for (int pair = 0; pair < 4; ++pair) {
            float low, high;
            unpack_f16(pairs[pair], low, high);
            sum += low + high;
          }
#pragma unroll
          for (int distance = 1; distance < kLanesOfGroup; distance *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, distance);
          }
          if (lane % kLanesOfGroup == 0) {
            staged.sums[(unit * kGroups + lane / kLanesOfGroup) * staged.kSumsPitch + token] = sum;
          }
        }
      }
    }
  }
}

// Adds to sums[tile] the products of the 16 rows of a unit in shared memory with the tokens of each
// tile of 8, as mma_16x8x16 lays them out. x_of[tile]: this lane's token's x at column 4 (lane % 4)
// of the unit; x_sums: of the unit's first group, token 2 (lane % 4).
template <class T, int kTiles>
__device__ __forceinline__ void multiply_unit_rows(const uint8_t* unit_bytes, const uint32_t* grid,
                                                   const uint8_t* const (&x_of)[kTiles],
                                                   const float* x_sums, float (&sums)[kTiles][4]) {
  constexpr int kGroupElems = T::kGroupElems;
  constexpr int kProducts = kGroupElems / 16;  // of a group
  const int lane = threadIdx.x % kWarpSize;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int set = 0; set < quant::kUnitCols / kGroupElems / 4; ++set) {
    // Each of the four lanes of a row unpacks the scales of one group.
    quant::Affine own[2];  // of rows g and g + 8
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int elem = (4 * set + t) * kGroupElems;
      own[below] =
          T::affine(quant::PlanesBlock<T>{unit_bytes, g + 8 * below, elem / T::kBlockElems},
                    elem % T::kBlockElems / kGroupElems);
    }
#pragma unroll
    for (int of_set = 0; of_set < 4; ++of_set) {
      const int group = 4 * set + of_set;
      uint32_t a[kProducts][4];
      float scale[2], offset[2] = {0.0f, 0.0f};
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        scale[below] = __shfl_sync(0xffffffffu, own[below].scale, 4 * g + of_set);
        if constexpr (T::kHasOffset) {
          offset[below] = __shfl_sync(0xffffffffu, own[below].offset, 4 * g + of_set);
        }
#pragma unroll
        for (int product = 0; product < kProducts; ++product) {
          const int elem = group * kGroupElems + 16 * product;
          const auto block =
              quant::unit_block<T>(unit_bytes, g + 8 * below, elem / T::kBlockElems, grid);
          exact_f16<T::kQuantBias>(T::quants4(block, elem % T::kBlockElems / 4 + t),
                                   a[product][below], a[product][below + 2]);
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float of_group[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int product = 0; product < kProducts; ++product) {
          const uint2 x = *reinterpret_cast<const uint2*>(x_of[tile] +
                                                          2 * (group * kGroupElems + 16 * product));
          const uint32_t b[2] = {x.x, x.y};
          mma_16x8x16(of_group, a[product], b);
        }
        if constexpr (T::kHasOffset) {
          const float2 x_sum = *reinterpret_cast<const float2*>(
              x_sums + group * StagedRows<kTiles>::kSumsPitch + kTokenTile * tile);
          sums[tile][0] += offset[0] * x_sum.x;
          sums[tile][1] += offset[0] * x_sum.y;
          sums[tile][2] += offset[1] * x_sum.x;
          sums[tile][3] += offset[1] * x_sum.y;
        }
#pragma unroll
        for (int elem = 0; elem < 4; ++elem) {
          sums[tile][elem] += scale[elem / 2] * of_group[elem];
        }
      }
    }
  }
}

}  // namespace apr
