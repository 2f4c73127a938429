// Computes  q = rope(norm(q)) in place, cache[position] = rope(norm(k)), v; norms are optional
// Reads     q, k, v of n_tokens f32, norms, inv_freq     Writes  q f32, the cache's new rows
// Grid      (n_tokens, ceil((n_heads + 2 * n_kv_heads) / kWarps))
// Block     kWarps warps, a head each   Shared  dynamic: kWarps * head_dim * 4 bytes
// Assumes   nothing of alignment; cache rows up to position + n_tokens are mapped
// Moves     n_tokens * (n_heads * 8 + n_kv_heads * (8 + 2 * element)) * head_dim bytes
// Determinism  gpu_to_gpu   Reference  cpu::reference::rms_norm, rope, kv_append
#include "attention_params.h"
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "kv_type.cuh"
#include "norm_rope.cuh"
#include "product_rows.cuh"
#include "reduce.cuh"

namespace apr {

template <class Kv>
__global__ void qk_rope_append(const __grid_constant__ QkRopeAppendParams p) {
  APR_DYNAMIC_SHARED(float, heads);  // [warps, head_dim]
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int64_t token = blockIdx.x;
  // q heads, then k heads, then v heads
  const int unit = blockIdx.y * (blockDim.x / kWarpSize) + warp;
  grid_dependency_wait();
  grid_dependency_launch();
  if (unit >= p.n_heads + 2 * p.n_kv_heads) {
    return;
  }
  float* x = heads + warp * p.head_dim;
  const int position = p.step->position + static_cast<int>(token);
  const bool is_q = unit < p.n_heads;
  const bool is_k = !is_q && unit < p.n_heads + p.n_kv_heads;
  const int head = is_q ? unit : (unit - p.n_heads) % p.n_kv_heads;
  if (p.products.data != nullptr) {
    const ProductRow<1> product(p.products, p.columns[is_q ? 0 : is_k ? 1 : 2], token);
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      x[elem] = product.at(head * p.head_dim + elem).v[0];
    }
  } else {
    const int64_t kv_row = token * p.n_kv_heads + head;
    const float* source = is_q ? p.q.q + token * p.q.token_stride + head * p.q.head_stride
                               : (is_k ? p.k : p.v) + kv_row * p.head_dim;
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      x[elem] = source[elem];
    }
  }
  __syncwarp();
  if (is_q || is_k) {
    const float* norm = is_q ? p.q_norm : p.k_norm;
    if (norm != nullptr) {
      norm_head(x, p.head_dim, norm, p.eps);
    }
    rotate_head(x, p.n_rot, p.inv_freq, position, p.magnitude);
  }
  if (is_q) {
    float* out = p.q.q + token * p.q.token_stride + head * p.q.head_stride;
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      out[elem] = x[elem];
    }
  } else {
    auto* cache = static_cast<typename Kv::Element*>(is_k ? p.cache.k : p.cache.v) +
                  (static_cast<int64_t>(position) * p.n_kv_heads + head) * p.head_dim;
    for (int elem = lane; elem < p.head_dim; elem += kWarpSize) {
      cache[elem] = Kv::store(x[elem]);
    }
  }
}

}  // namespace apr
