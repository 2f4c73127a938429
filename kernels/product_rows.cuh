// What the kernels around 16- and 8-bit products share: a few neighbouring values of a row, and the
// values behind the products.
#pragma once

#include "e4m3.cuh"
#include "mma.cuh"
#include "params.h"
#include "power_of_two.cuh"
#include "reduce.cuh"
#include "row_threads.h"

namespace apr {

// kVector neighbours of a row, loaded and stored at once: 1, or 4 at 16-byte aligned addresses.
template <int kVector>
struct Lanes {
  float v[kVector];

  __device__ static Lanes load(const float* from) {
    Lanes lanes;
    if constexpr (kVector == 4) {
      const float4 loaded = *reinterpret_cast<const float4*>(from);
      lanes.v[0] = loaded.x;
      lanes.v[1] = loaded.y;
      lanes.v[2] = loaded.z;
      lanes.v[3] = loaded.w;
    } else {
      lanes.v[0] = *from;
    }
    return lanes;
  }
  __device__ void store(float* to) const {
    if constexpr (kVector == 4) {
      *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
    } else {
      *to = v[0];
    }
  }
  // Of value * scale, as f16 or E4M3.
  __device__ void store_scaled(uint16_t* to, float scale) const {
    if constexpr (kVector == 4) {
      *reinterpret_cast<uint2*>(to) =
          make_uint2(pack_f16(v[0] * scale, v[1] * scale), pack_f16(v[2] * scale, v[3] * scale));
    } else {
      *to = static_cast<uint16_t>(pack_f16(v[0] * scale, 0.0f));
    }
  }
  __device__ void store_scaled(uint8_t* to, float scale) const {
    if constexpr (kVector == 4) {
      *reinterpret_cast<uint32_t*>(to) =
          pack_e4m3(v[0] * scale, v[1] * scale) |
          static_cast<uint32_t>(pack_e4m3(v[2] * scale, v[3] * scale)) << 16;
    } else {
      *to = e4m3_bits(v[0] * scale);
    }
  }
  __device__ float largest() const {
    float found = 0.0f;
#pragma unroll
    for (int lane = 0; lane < kVector; ++lane) {
      found = fmaxf(found, fabsf(v[lane]));
    }
    return found;
  }
};

// One row of ProductColumns.
template <int kVector>
struct ProductRow {
  const float* products;  // of the first column
  const float* bias;
  float undo_row, undo_weight;
  int64_t split_stride;
  int n_splits;

  __device__ ProductRow(const Products& all, const ProductColumns& columns, int64_t row)
      : products(all.data + row * all.stride + columns.first_col),
        bias(columns.bias),
        undo_row(all.undo == nullptr ? 1.0f : all.undo[row]),
        undo_weight(all.undo == nullptr ? 1.0f : power_to_f16(*columns.largest).down),
        split_stride(all.split_stride),
        n_splits(columns.n_splits) {}

  // The values of columns [col, col + kVector).
  __device__ Lanes<kVector> at(int col) const {
    Lanes<kVector> lanes = Lanes<kVector>::load(products + col);
#pragma unroll 4
    for (int split = 1; split < n_splits; ++split) {
      const Lanes<kVector> more = Lanes<kVector>::load(products + split * split_stride + col);
#pragma unroll
      for (int lane = 0; lane < kVector; ++lane) {
        lanes.v[lane] += more.v[lane];
      }
    }
#pragma unroll
    for (int lane = 0; lane < kVector; ++lane) {
      // One power after the other: together they may leave the range of f32 though the value is in.
      lanes.v[lane] = lanes.v[lane] * undo_row * undo_weight;
    }
    if (bias != nullptr) {
      const Lanes<kVector> added = Lanes<kVector>::load(bias + col);
#pragma unroll
      for (int lane = 0; lane < kVector; ++lane) {
        lanes.v[lane] += added.v[lane];
      }
    }
    return lanes;
  }
};

// The rows that a kernel makes: E4M3 or f16.
template <bool kE4m3, class Params>
__device__ auto scaled_rows(const Params& p) {
  if constexpr (kE4m3) {
    return p.y_e4m3;
  } else {
    return p.y;
  }
}

// The scaling of a row whose largest |value| is `largest`, and what undoes it.
__device__ inline PowerOfTwo row_power(const F16Rows&, float largest) {
  return power_to_f16(largest);
}
__device__ inline PowerOfTwo row_power(const E4m3Rows&, float largest) {
  return {up_to_e4m3(largest), power_to_f16(largest).down * kUndoE4m3Product};
}

// Ends a row of `n_cols` values that `value_at` gives, [col, col + kVector) at a time: scaled, with
// what undoes that. Every thread of the block calls; `largest` is the thread's own.
template <int kVector, class Rows, class ValueAt>
__device__ void store_scaled_row(const Rows& y, int64_t row, int n_cols, float largest,
                                 float* scratch, const ValueAt& value_at) {
  const PowerOfTwo power = row_power(y, block_max(largest, scratch));
  for (int col = kVector * threadIdx.x; col < n_cols; col += kVector * blockDim.x) {
    value_at(col).store_scaled(y.values + row * n_cols + col, power.up);
  }
  if (threadIdx.x == 0) {
    y.undo[row] = power.down;
  }
}

}  // namespace apr
