// RMS norm and rotary embedding of one head in shared memory by one warp.
#pragma once

#include "reduce.cuh"
#include "sincos.cuh"

namespace apr {

// x = x / sqrt(mean(x^2) + eps) * weight, x and weight [head_dim]
__device__ __forceinline__ void norm_head(float* x, int head_dim, const float* weight, float eps) {
  const int lane = threadIdx.x % kWarpSize;
  float sum = 0.0f;
  for (int elem = lane; elem < head_dim; elem += kWarpSize) {
    sum += x[elem] * x[elem];
  }
  const float mean = __fdiv_rn(warp_sum(sum), static_cast<float>(head_dim));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + eps));
  for (int elem = lane; elem < head_dim; elem += kWarpSize) {
    x[elem] = x[elem] * scale * weight[elem];
  }
  __syncwarp();
}

// Turns pairs (j, j + n_rot / 2) of x by position * inv_freq[j].
__device__ __forceinline__ void rotate_head(float* x, int n_rot, const float* inv_freq,
                                            int position, float magnitude) {
  const int n_pairs = n_rot / 2;
  for (int pair = threadIdx.x % kWarpSize; pair < n_pairs; pair += kWarpSize) {
    float sine, cosine;
    accurate_sincos(static_cast<float>(position) * inv_freq[pair], sine, cosine);
    cosine *= magnitude;
    sine *= magnitude;
    const float a = x[pair], b = x[pair + n_pairs];
    x[pair] = a * cosine - b * sine;
    x[pair + n_pairs] = a * sine + b * cosine;
  }
  __syncwarp();
}

}  // namespace apr
