// The products of 32 rows of weights with up to 64 tokens over some columns, by one warp
// (sm_80 and later). Weights are the rows of the tensor-core product and never leave the registers
// of the warp that decodes them; tokens are its columns, 8 at a time.
//
// The columns that one product of 16 meets may come in any order, the same for both operands: lane
// t of four has weights 4t to 4t + 3 of each 16, the four that one word decodes to.
#pragma once

#include "mma.cuh"
#include "quant/device.cuh"
#include "reduce.cuh"
#include "small_gemm_layout.cuh"

namespace apr {

constexpr int kStepCols = 32;  // as many as registers allow

// scale * q + offset of four bytes u = q + kBias, rounded to f16. 2^23 + u is the f32 of bits
// 0x4b000000 | u.
template <int kBias>
__device__ __forceinline__ void scaled_f16(uint32_t bytes, const quant::Affine& affine,
                                           uint32_t& first, uint32_t& second) {
  float values[4];
#pragma unroll
  for (int elem = 0; elem < 4; ++elem) {
    const float q = __uint_as_float(quant::byte_perm(bytes, 0x4b000000u, 0x7440u + elem)) -
                    static_cast<float>(0x800000 + kBias);
    values[elem] = affine.scale * q + affine.offset;
  }
  first = pack_f16(values[0], values[1]);
  second = pack_f16(values[2], values[3]);
}

// The affine of a group that lane `lane` has.
template <class T>
__device__ __forceinline__ quant::Affine affine_of_lane(const quant::Affine& own, int lane) {
  return {__shfl_sync(0xffffffffu, own.scale, lane),
          T::kHasOffset ? __shfl_sync(0xffffffffu, own.offset, lane) : 0.0f};
}

// Adds to sums[half][tile] the products of the rows of units[half] with tokens [8 tile, + 8).
// `col` in the unit, a multiple of kStepCols; `x_rows`: token lane / 4 of the first tile. Weights *
// `up` are rounded to f16.
template <class T, int kMostTiles>
__device__ __forceinline__ void multiply_step(const uint8_t* units, const uint8_t* x_rows, int col,
                                              int n_tiles, float up,
                                              float (&sums)[2][kMostTiles][4]) {
  constexpr int kGroupElems = T::kGroupElems;
  constexpr int kGroups = kStepCols / kGroupElems;
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  const int lane = threadIdx.x % kWarpSize;
  const int g = lane / 4, t = lane % 4;
  const auto block_of = [&](int half, int row, int elem) {
    return quant::PlanesBlock<T>{units + half * kUnitBytes, row, elem / T::kBlockElems};
  };
  quant::Affine own[kGroups];  // of row `lane` of the 32
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int elem = col + group * kGroupElems;
    own[group] = T::affine(block_of(lane / quant::kUnitRows, lane % quant::kUnitRows, elem),
                           elem % T::kBlockElems / kGroupElems);
    own[group].scale *= up;
    own[group].offset *= up;
  }
#pragma unroll
  for (int first = 0; first < kStepCols; first += 16) {
    uint32_t a[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        const quant::Affine affine =
            affine_of_lane<T>(own[first / kGroupElems], 16 * half + 8 * below + g);
        const int elem = col + first;
        const uint32_t bytes =
            T::quants4(block_of(half, g + 8 * below, elem), elem % T::kBlockElems / 4 + t);
        scaled_f16<T::kQuantBias>(bytes, affine, a[half][below], a[half][below + 2]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kMostTiles; ++tile) {
      if (tile < n_tiles) {
        const uint2 x = *reinterpret_cast<const uint2*>(x_rows + tile * 8 * kSmallGemmXBytes +
                                                        (col + first) * 2);
        const uint32_t b[2] = {x.x, x.y};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          mma_16x8x16(sums[half][tile], a[half], b);
        }
      }
    }
  }
}

// The same over the 256 columns of an item, of which the warps share the quarters.
template <class T, int kMostTiles>
__device__ __forceinline__ void multiply_item(const uint8_t* units, const uint8_t* x_rows,
                                              int col_warp, int row_warps_log2, int n_tiles,
                                              float up, float (&sums)[2][kMostTiles][4]) {
  // Known columns make addresses in a unit constants, so every warp has the code of all.
#pragma unroll
  for (int col = 0; col < quant::kUnitCols; col += kStepCols) {
    if (col / 64 >> (row_warps_log2 - 2) == col_warp) {
      multiply_step<T>(units, x_rows, col, n_tiles, up, sums);
    }
  }
}

}  // namespace apr
