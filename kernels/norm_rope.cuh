// RMS norm and rotary embedding of one head in shared memory by one warp.
#pragma once

#include "reduce.cuh"
#include "sincos.cuh"

namespace apr {

// 1 / sqrt(sum / head_dim + eps), `sum` of squares of one lane of the warp.
__device__ __forceinline__ float inverse_rms(float sum, int head_dim, float eps) {
  return __frsqrt_rn(warp_sum(sum) * __fdiv_rn(1.0f, static_cast<float>(head_dim)) + eps);
}

// Sine and cosine of position * inv_freq, both times `magnitude`.
__device__ __forceinline__ void turn(float inv_freq, int position, float magnitude, float& sine,
                                     float& cosine) {
  accurate_sincos(static_cast<float>(position) * inv_freq, sine, cosine);
  cosine *= magnitude;
  sine *= magnitude;
}

__device__ __forceinline__ void rotate(float& a, float& b, float sine, float cosine) {
  const float turned = a * cosine - b * sine;
  b = a * sine + b * cosine;
  a = turned;
}

// x = x / sqrt(mean(x^2) + eps) * weight, x and weight [head_dim]
__device__ __forceinline__ void norm_head(float* x, int head_dim, const float* weight, float eps) {
  const int lane = threadIdx.x % kWarpSize;
  float sum = 0.0f;
  for (int elem = lane; elem < head_dim; elem += kWarpSize) {
    sum += x[elem] * x[elem];
  }
  const float scale = inverse_rms(sum, head_dim, eps);
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
    turn(inv_freq[pair], position, magnitude, sine, cosine);
    rotate(x[pair], x[pair + n_pairs], sine, cosine);
  }
  __syncwarp();
}

}  // namespace apr
