// Computes  y = w norm(x) (+ bias) (+ residual); kSwiglu: silu(w x) * (w1 x)
// Reads     x [n_cols] f32, w [n_rows, n_cols] in T      Writes  y [n_rows] f32
// Grid      any number of blocks, which share the rows   Block  kWarps warps, a row each at a time
// Shared    n_cols * 4 bytes dynamic (the normed x) + 32 floats
// Assumes   one part (kSwiglu: two); n_cols % 8 == 0 and a whole number of blocks
// Moves     n_rows * row_bytes + blocks * n_cols * 4 bytes
// Determinism  gpu_to_gpu   Reference  cpu::reference::matmul (f32 weights bit for bit, f32 sums)
#include "grid_dependency.cuh"
#include "params.h"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "reduce.cuh"
#include "sigmoid.cuh"
#include "weight.cuh"

namespace apr {

// One row's product with the staged x, in every lane.
template <class T, bool kPlanes>
__device__ inline float row_dot(const WeightRef& w, int64_t row, const float* x) {
  const int lane = threadIdx.x % kWarpSize;
  float sum = 0.0f;
  for (int octet = lane; octet < w.n_cols / 8; octet += kWarpSize) {
    float weights[8];
    weight_octet<T, kPlanes>(w, row, octet, weights);
    const float4 low = *reinterpret_cast<const float4*>(x + 8 * octet);
    const float4 high = *reinterpret_cast<const float4*>(x + 8 * octet + 4);
    sum += weights[0] * low.x;
    sum += weights[1] * low.y;
    sum += weights[2] * low.z;
    sum += weights[3] * low.w;
    sum += weights[4] * high.x;
    sum += weights[5] * high.y;
    sum += weights[6] * high.z;
    sum += weights[7] * high.w;
  }
  return warp_sum(sum);
}

template <class T, bool kPlanes, MatvecEpilogue kEpilogue>
__global__ void matvec_fma(const __grid_constant__ MatvecParams p) {
  extern __shared__ float4 shared[];
  __shared__ float scratch[kMaxWarps];
  float* x = reinterpret_cast<float*>(shared);  // [n_cols]
  const MatvecPart& part = p.parts[0];
  const int n_cols = part.w.n_cols;
  const int warp = threadIdx.x / kWarpSize;
  const int n_warps = blockDim.x / kWarpSize;
  grid_dependency_wait();
  grid_dependency_launch();
  float scale = 1.0f;
  if (p.norm_weight != nullptr) {
    float sum = 0.0f;
    for (int col = threadIdx.x; col < n_cols; col += blockDim.x) {
      sum += p.x[col] * p.x[col];
    }
    const float mean = __fdiv_rn(block_sum(sum, scratch), static_cast<float>(n_cols));
    scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
  }
  for (int col = threadIdx.x; col < n_cols; col += blockDim.x) {
    const float value = p.x[col];
    x[col] = p.norm_weight == nullptr ? value : value * scale * p.norm_weight[col];
  }
  __syncthreads();
  for (int64_t row = blockIdx.x * n_warps + warp; row < part.w.n_rows;
       row += static_cast<int64_t>(gridDim.x) * n_warps) {
    float value = row_dot<T, kPlanes>(part.w, row, x);
    if constexpr (kEpilogue == MatvecEpilogue::kSwiglu) {
      const float up = row_dot<T, kPlanes>(p.parts[1].w, row, x);
      value = times_sigmoid(value, value) * up;
    }
    if (threadIdx.x % kWarpSize == 0) {
      if (part.bias != nullptr) {
        value += part.bias[row];
      }
      part.y[row] = p.residual == nullptr ? value : value + p.residual[row];
    }
  }
}

}  // namespace apr
