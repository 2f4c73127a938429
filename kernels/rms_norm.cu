// Computes  y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight
// Reads     x [n_rows, dim] f32, weight [dim] f32      Writes  y [n_rows, dim] f32, may be x
// Grid      n_rows   Block  any number of whole warps   Shared  32 floats, static
// Assumes   kVector = 4: dim % 4 == 0; x, weight, y 16-byte aligned. kVector = 1: nothing
// Moves     n_rows * dim * 8 + dim * 4 bytes (x is read twice, the second time from cache)
// Determinism  gpu_to_gpu, for one block size   Reference  cpu::reference::rms_norm
#include "grid_dependency.cuh"
#include "params.h"
#include "reduce.cuh"

namespace apr {

template <int kVector>
struct Vector;
template <>
struct Vector<1> {
  using Type = float;
};
template <>
struct Vector<4> {
  using Type = float4;
};

__device__ inline float sum_of_squares(float v) {
  return v * v;
}
__device__ inline float sum_of_squares(float4 v) {
  return v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
}
__device__ inline float scaled(float v, float scale, float weight) {
  return v * scale * weight;
}
__device__ inline float4 scaled(float4 v, float scale, float4 weight) {
  return make_float4(v.x * scale * weight.x, v.y * scale * weight.y, v.z * scale * weight.z,
                     v.w * scale * weight.w);
}

template <int kVector>
__global__ void rms_norm(const __grid_constant__ RmsNormParams p) {
  using V = typename Vector<kVector>::Type;
  __shared__ float scratch[kMaxWarps];
  const int n_vectors = p.dim / kVector;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.dim;
  const V* x = reinterpret_cast<const V*>(p.x + first);
  const V* weight = reinterpret_cast<const V*>(p.weight);
  V* y = reinterpret_cast<V*>(p.y + first);

  grid_dependency_wait();
  grid_dependency_launch();
  float sum = 0.0f;
  for (int idx = threadIdx.x; idx < n_vectors; idx += blockDim.x) {
    sum += sum_of_squares(x[idx]);
  }
  // IEEE division and root: the approximations would cost two bits more than the reference allows.
  const float mean = __fdiv_rn(block_sum(sum, scratch), static_cast<float>(p.dim));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
  for (int idx = threadIdx.x; idx < n_vectors; idx += blockDim.x) {
    y[idx] = scaled(x[idx], scale, weight[idx]);
  }
}

}  // namespace apr
