// Computes  q_out = rope(norm(q)), cache[position] = rope(norm(k)), v; norms are optional
// Reads     q, k, v of n_tokens f32, norms, inv_freq     Writes  q_out f32, k_cache, v_cache
// Grid      (n_heads + 2 * n_kv_heads, n_tokens)   Block  1 warp   Shared  head_dim * 4 bytes
// Assumes   nothing of alignment; cache rows up to position + n_tokens are mapped
// Moves     n_tokens * (n_heads * 8 + n_kv_heads * (8 + 2 * element)) * head_dim bytes
// Determinism  gpu_to_gpu   Reference  cpu::reference::rms_norm, rope, kv_append
#include "grid_dependency.cuh"
#include "kv_type.cuh"
#include "params.h"
#include "reduce.cuh"
#include "sincos.cuh"

namespace apr {

// Norms (weight may be null) and rotates the head in `x` [head_dim] shared.
__device__ inline void norm_and_rotate(const QkRopeAppendParams& p, const float* weight,
                                       int position, float* x) {
  const int lane = threadIdx.x;
  if (weight != nullptr) {
    float sum = 0.0f;
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      sum += x[elem] * x[elem];
    }
    const float mean = __fdiv_rn(warp_sum(sum), static_cast<float>(p.head_dim));
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      x[elem] = x[elem] * scale * weight[elem];
    }
    __syncwarp();
  }
  const int n_pairs = p.n_rot / 2;
  for (int pair = lane; pair < n_pairs; pair += kWarpSize) {
    float sine, cosine;
    accurate_sincos(static_cast<float>(position) * p.inv_freq[pair], sine, cosine);
    cosine *= p.magnitude;
    sine *= p.magnitude;
    const float a = x[pair], b = x[pair + n_pairs];
    x[pair] = a * cosine - b * sine;
    x[pair + n_pairs] = a * sine + b * cosine;
  }
  __syncwarp();
}

template <class Kv>
__global__ void qk_rope_append(const __grid_constant__ QkRopeAppendParams p) {
  extern __shared__ float x[];  // [head_dim]
  const int lane = threadIdx.x;
  const int unit = blockIdx.x;  // q heads, then k heads, then v heads
  const int64_t token = blockIdx.y;
  grid_dependency_wait();
  grid_dependency_launch();
  const int position = p.step->position + static_cast<int>(token);
  const bool is_q = unit < p.n_heads;
  const bool is_k = !is_q && unit < p.n_heads + p.n_kv_heads;
  const int head = is_q ? unit : (unit - p.n_heads) % p.n_kv_heads;
  const float* source = is_q   ? p.q + token * p.q_stride + head * p.q_head_stride
                        : is_k ? p.k + token * p.k_stride + head * p.head_dim
                               : p.v + token * p.v_stride + head * p.head_dim;
  for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
    x[elem] = source[elem];
  }
  __syncwarp();
  if (is_q || is_k) {
    norm_and_rotate(p, is_q ? p.q_norm : p.k_norm, position, x);
  }
  if (is_q) {
    float* out = p.q_out + (token * p.n_heads + head) * p.head_dim;
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      out[elem] = x[elem];
    }
  } else {
    auto* cache = static_cast<typename Kv::Element*>(is_k ? p.k_cache : p.v_cache) +
                  (static_cast<int64_t>(position) * p.n_kv_heads + head) * p.head_dim;
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      cache[elem] = Kv::store(x[elem]);
    }
  }
}

}  // namespace apr
