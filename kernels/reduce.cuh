// Sums over the threads of a warp and of a block, in an order fixed by the block size alone: the
// same bits on every GPU. Every thread of the warp or block must call, and each gets the sum.
#pragma once

#include "platform.cuh"

namespace apr {

constexpr int kWarpSize = 32;
constexpr int kMaxWarps = 32;

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// `scratch`: [kMaxWarps] f32 shared, free for another use after a __syncthreads(). Blocks are one-
// dimensional and whole warps.
__device__ inline float block_sum(float value, float* scratch) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int n_warps = blockDim.x / kWarpSize;
  value = warp_sum(value);
  if (n_warps == 1) {
    return value;
  }
  if (lane == 0) {
    scratch[warp] = value;
  }
  __syncthreads();
  return warp_sum(lane < n_warps ? scratch[lane] : 0.0f);
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// The largest and the smallest of a warp's values.
__device__ __forceinline__ uint32_t warp_max(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, value);
#else
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = other > value ? other : value;
  }
  return value;
#endif
}

__device__ __forceinline__ uint32_t warp_min(uint32_t value) {
  return ~warp_max(~value);
}

// As block_sum; ends with a barrier, so that `scratch` is free at once.
__device__ inline float block_max(float value, float* scratch) {
  const int n_warps = blockDim.x / kWarpSize;
  value = warp_max(value);
  if (threadIdx.x % kWarpSize == 0) {
    scratch[threadIdx.x / kWarpSize] = value;
  }
  __syncthreads();
  const int lane = threadIdx.x % kWarpSize;
  value = warp_max(lane < n_warps ? scratch[lane] : scratch[0]);
  __syncthreads();
  return value;
}

}  // namespace apr
