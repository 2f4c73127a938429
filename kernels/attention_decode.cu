// Computes  y[h] = softmax_p(scale * q[h] . K[p, h / group]) V[p, h / group]  (* sigmoid(gate[h]))
// Reads     q [n_tokens, n_heads, head_dim] f32, the cache's first position + n_tokens rows
// Writes    y [n_tokens, n_heads, head_dim] f32; partial results of the splits
// Grid      (n_kv_heads, n_splits, n_tokens): fixed; the splits share the keys there are, and the
//           last block of a kv head to end joins them, in their order
// Block     4 warps, a tile of 32 keys each at a time
// Shared    static: q as kGroup * kHeadDim floats, and what joins the warps
// Assumes   kHeadDim 64, 128 or 256; kGroup = n_heads / n_kv_heads
// Moves     2 * (position + n_tokens) * n_kv_heads * head_dim * element bytes a token
// Determinism  gpu_to_gpu, for one number of splits   Reference  cpu::reference::attention
#include "attention_params.h"
#include "grid_dependency.cuh"
#include "kv_type.cuh"
#include "reduce.cuh"
#include "sigmoid.cuh"

namespace apr {

constexpr int kAttentionWarps = 4;
constexpr float kNoKey = -1e30f;  // below every score; exp(kNoKey - kNoKey) counts nothing: l is 0

template <class Kv, int kHeadDim, int kGroup>
__global__ void __launch_bounds__(kAttentionWarps * 32, 1)
    attention_decode(const __grid_constant__ AttentionDecodeParams p) {
  // Loads in flight: more would spill where a head is large.
  constexpr int kQuartetsAtOnce = kHeadDim > 128 ? 4 : 16, kValuesAtOnce = kHeadDim > 128 ? 2 : 8;
  constexpr int kDims = kHeadDim / kWarpSize;  // of V, a lane: [kDims * lane, + kDims)
  __shared__ float4 q[kGroup][kHeadDim / 4];
  __shared__ float weights[kAttentionWarps][kGroup][kWarpSize];
  __shared__ float joined[kAttentionWarps][kGroup][kHeadDim + 2];
  __shared__ bool is_last;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int kv_head = blockIdx.x, split = blockIdx.y, n_splits = gridDim.y;
  const int64_t token = blockIdx.z;
  const int64_t row_elems = static_cast<int64_t>(p.n_kv_heads) * kHeadDim;

  grid_dependency_wait();
  grid_dependency_launch();
  const int n_keys = p.step->position + static_cast<int>(token) + 1;
  for (int idx = threadIdx.x; idx < kGroup * (kHeadDim / 4); idx += blockDim.x) {
    const int head = kv_head * kGroup + idx / (kHeadDim / 4);
    const float4 v = reinterpret_cast<const float4*>(p.q.q + token * p.q.token_stride +
                                                     head * p.q.head_stride)[idx % (kHeadDim / 4)];
    q[idx / (kHeadDim / 4)][idx % (kHeadDim / 4)] =
        make_float4(v.x * p.scale, v.y * p.scale, v.z * p.scale, v.w * p.scale);
  }
  __syncthreads();

  const auto* k_cache = static_cast<const typename Kv::Element*>(p.cache.k) + kv_head * kHeadDim;
  const auto* v_cache = static_cast<const typename Kv::Element*>(p.cache.v) + kv_head * kHeadDim;
  const int n_tiles = (n_keys + kWarpSize - 1) / kWarpSize;
  // Few keys need few splits: the first ones take a tile a warp, the others end.
  const int n_used = min(n_splits, (n_tiles + kAttentionWarps - 1) / kAttentionWarps);
  if (split >= n_used) {
    return;
  }
  const int tiles_per_split = (n_tiles + n_used - 1) / n_used;
  const int end_tile = min(n_tiles, (split + 1) * tiles_per_split);

  float largest[kGroup], total[kGroup], acc[kGroup][kDims];
#pragma unroll
  for (int head = 0; head < kGroup; ++head) {
    largest[head] = kNoKey;
    total[head] = 0.0f;
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) {
      acc[head][dim] = 0.0f;
    }
  }
  for (int tile = split * tiles_per_split + warp; tile < end_tile; tile += kAttentionWarps) {
    const int key = tile * kWarpSize + lane;
    float score[kGroup] = {};
    if (key < n_keys) {
      const auto* k_row = k_cache + key * row_elems;
#pragma unroll kQuartetsAtOnce
      for (int quartet = 0; quartet < kHeadDim / 4; ++quartet) {
        const float4 k = Kv::load4(k_row, quartet);
#pragma unroll
        for (int head = 0; head < kGroup; ++head) {
          const float4 qv = q[head][quartet];
          score[head] += qv.x * k.x + qv.y * k.y + (qv.z * k.z + qv.w * k.w);
        }
      }
    }
#pragma unroll
    for (int head = 0; head < kGroup; ++head) {
      const float s = key < n_keys ? score[head] : kNoKey;
      const float new_largest = fmaxf(largest[head], warp_max(s));
      const float keep = expf(largest[head] - new_largest);
      const float weight = key < n_keys ? expf(s - new_largest) : 0.0f;
      total[head] = total[head] * keep + warp_sum(weight);
      largest[head] = new_largest;
      weights[warp][head][lane] = weight;
#pragma unroll
      for (int dim = 0; dim < kDims; ++dim) {
        acc[head][dim] *= keep;
      }
    }
    __syncwarp();
    const int tile_keys = min(kWarpSize, n_keys - tile * kWarpSize);
#pragma unroll kValuesAtOnce
    for (int idx = 0; idx < tile_keys; ++idx) {
      const auto* v_row = v_cache + (tile * kWarpSize + idx) * row_elems;
      float v[kDims];
      if constexpr (kDims >= 4) {
#pragma unroll
        for (int part = 0; part < kDims / 4; ++part) {
          const float4 four = Kv::load4(v_row, lane + part * kWarpSize);
          v[4 * part] = four.x;
          v[4 * part + 1] = four.y;
          v[4 * part + 2] = four.z;
          v[4 * part + 3] = four.w;
        }
      } else {
        const float4 four = Kv::load4(v_row, lane / 2);
        v[0] = lane % 2 == 0 ? four.x : four.z;
        v[1] = lane % 2 == 0 ? four.y : four.w;
      }
#pragma unroll
      for (int head = 0; head < kGroup; ++head) {
        const float weight = weights[warp][head][idx];
#pragma unroll
        for (int dim = 0; dim < kDims; ++dim) {
          acc[head][dim] += weight * v[dim];
        }
      }
    }
    __syncwarp();
  }

  // Dimension `dim` of this lane in a head's row.
  const auto position_of = [&](int dim) {
    return kDims >= 4 ? 4 * (lane + dim / 4 * kWarpSize) + dim % 4 : 2 * lane + dim;
  };
#pragma unroll
  for (int head = 0; head < kGroup; ++head) {
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) {
      joined[warp][head][position_of(dim)] = acc[head][dim];
    }
    if (lane == 0) {
      joined[warp][head][kHeadDim] = largest[head];
      joined[warp][head][kHeadDim + 1] = total[head];
    }
  }
  __syncthreads();
  const int64_t unit = token * p.n_kv_heads + kv_head;
  float* partial = p.partial + unit * n_splits * kGroup * (kHeadDim + 2);
  for (int idx = threadIdx.x; idx < kGroup * kHeadDim; idx += blockDim.x) {
    const int head = idx / kHeadDim, elem = idx % kHeadDim;
    float top = kNoKey, sum = 0.0f, weighted = 0.0f;
    for (int from = 0; from < kAttentionWarps; ++from) {
      top = fmaxf(top, joined[from][head][kHeadDim]);
    }
    for (int from = 0; from < kAttentionWarps; ++from) {
      const float keep = expf(joined[from][head][kHeadDim] - top);
      weighted += keep * joined[from][head][elem];
      sum += keep * joined[from][head][kHeadDim + 1];
    }
    float* out = partial + (static_cast<int64_t>(split) * kGroup + head) * (kHeadDim + 2);
    out[elem] = weighted;
    if (elem == 0) {
      out[kHeadDim] = top;
      out[kHeadDim + 1] = sum;
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(p.counters + unit, 1u) == static_cast<uint32_t>(n_used) - 1;
  }
  __syncthreads();
  if (!is_last) {
    return;
  }
  __threadfence();
  for (int idx = threadIdx.x; idx < kGroup * kHeadDim; idx += blockDim.x) {
    const int head = idx / kHeadDim, elem = idx % kHeadDim;
    float top = kNoKey, sum = 0.0f, weighted = 0.0f;
    for (int from = 0; from < n_used; ++from) {
      top = fmaxf(top, partial[(from * kGroup + head) * (kHeadDim + 2) + kHeadDim]);
    }
    for (int from = 0; from < n_used; ++from) {
      const float* in = partial + (from * kGroup + head) * (kHeadDim + 2);
      const float keep = expf(in[kHeadDim] - top);
      weighted += keep * in[elem];
      sum += keep * in[kHeadDim + 1];
    }
    float value = __fdiv_rn(weighted, sum);
    const int global_head = kv_head * kGroup + head;
    if (p.gate.gate != nullptr) {
      const float* gate =
          p.gate.gate + token * p.gate.token_stride + global_head * p.gate.head_stride;
      value = times_sigmoid(value, gate[elem]);
    }
    p.y[(token * p.n_heads + global_head) * kHeadDim + elem] = value;
  }
  if (threadIdx.x == 0) {
    p.counters[unit] = 0;
  }
}

}  // namespace apr
