// Heads of a step as attention_split needs them: normed, rotated, in f16 in shared memory.
#pragma once

#include "attention_params.h"
#include "mma.cuh"
#include "norm_rope.cuh"
#include "power_of_two.cuh"
#include "softmax_exp2.cuh"

namespace apr {

// Query heads of the group in shared memory, as the columns of products.
template <int kHeadDim>
struct QueryHeads {
  static constexpr int kRowElems = kHeadDim + 32;  // lanes of two heads meet other banks
  uint16_t rows[8][kRowElems];                     // f16, each head scaled by a power of two
  float unscale[8];                                // turns its products into exponents of two

  // Elements [32 column + 8 t, + 8) of head g.
  __device__ __forceinline__ uint4 fragment(int column) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    return *reinterpret_cast<const uint4*>(&rows[g][32 * column + 8 * t]);
  }
};

// Norms and rotates heads, a warp each: what can be had before they are there is.
template <int kHeadDim>
class HeadPreparation {
 public:
  // `head`: below group a query head, then the key head.
  __device__ __forceinline__ HeadPreparation(const QkRopeAppendParams& p, int position)
      : p_(p), n_pairs_(p.n_rot / 2) {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int idx = 0; idx < kPairs; ++idx) {
      const int pair = lane + idx * kWarpSize;
      if (pair < n_pairs_) {
        turn(p.inv_freq[pair], position, p.magnitude, sine_[idx], cosine_[idx]);
      }
    }
  }

  __device__ __forceinline__ void load_norm(const float* norm) {
    has_norm_ = norm != nullptr;
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      weight_[idx] = has_norm_ ? norm[threadIdx.x % kWarpSize + idx * kWarpSize] : 1.0f;
    }
  }

  // Brings the head at `from` to `x` [kHeadDim] in shared memory, this warp's own.
  __device__ __forceinline__ void run(const float* from, float* x) const {
    const int lane = threadIdx.x % kWarpSize;
    float mine[kElems];
    float sum = 0.0f;
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      mine[idx] = from[lane + idx * kWarpSize];
    }
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      sum += mine[idx] * mine[idx];
    }
    const float scale = has_norm_ ? inverse_rms(sum, kHeadDim, p_.eps) : 1.0f;
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      x[lane + idx * kWarpSize] = mine[idx] * scale * weight_[idx];
    }
    __syncwarp();
#pragma unroll
    for (int idx = 0; idx < kPairs; ++idx) {
      const int pair = lane + idx * kWarpSize;
      if (pair < n_pairs_) {
        rotate(x[pair], x[pair + n_pairs_], sine_[idx], cosine_[idx]);
      }
    }
    __syncwarp();
  }

 private:
  static constexpr int kElems = kHeadDim / kWarpSize, kPairs = (kElems + 1) / 2;
  const QkRopeAppendParams& p_;
  int n_pairs_;
  bool has_norm_ = false;
  float sine_[kPairs], cosine_[kPairs], weight_[kElems];
};

// A head of f32 as f16 in `to`, scaled by a power of two that `unscale` undoes.
template <int kHeadDim>
__device__ __forceinline__ void store_query(const float2 (&pairs)[kHeadDim / 64], float scale,
                                            uint16_t* to, float* unscale) {
  const int lane = threadIdx.x % kWarpSize;
  float largest = 0.0f;
#pragma unroll
  for (int idx = 0; idx < kHeadDim / 64; ++idx) {
    largest = fmaxf(largest, fmaxf(fabsf(pairs[idx].x), fabsf(pairs[idx].y)));
  }
  const PowerOfTwo power = power_to_f16(warp_max(largest));
#pragma unroll
  for (int idx = 0; idx < kHeadDim / 64; ++idx) {
    reinterpret_cast<uint32_t*>(to)[lane + idx * kWarpSize] =
        pack_f16(pairs[idx].x * power.up, pairs[idx].y * power.up);
  }
  if (lane == 0) {
    *unscale = scale * kLog2E * power.down;
  }
}

template <int kHeadDim>
__device__ __forceinline__ void load_pairs(const float* from, float2 (&pairs)[kHeadDim / 64]) {
#pragma unroll
  for (int idx = 0; idx < kHeadDim / 64; ++idx) {
    pairs[idx] = reinterpret_cast<const float2*>(from)[threadIdx.x % kWarpSize + idx * kWarpSize];
  }
}

// Rows of the cache that this step adds, in shared memory: keys, values.
template <int kHeadDim>
struct NewRow {
  uint16_t k[kHeadDim], v[kHeadDim];
};

}  // namespace apr
