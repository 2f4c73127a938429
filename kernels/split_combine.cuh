// What ends attention_split: results of warps and of splits added up, gated and stored.
#pragma once

#include "attention_params.h"
#include "past_l1.cuh"
#include "reduce.cuh"
#include "softmax_exp2.cuh"
#include "split_shape.h"

namespace apr {

// Writes elements [elem, + 4) of a head's result.
template <int kHeadDim>
__device__ __forceinline__ void store_result(const AttentionSplitParams& p, int64_t token, int head,
                                             int elem, float4 sum, float total) {
  const float factor = __fdiv_rn(1.0f, total);
  float4 value = make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
  if (p.gate.gate != nullptr) {
    const float4 gate = *reinterpret_cast<const float4*>(p.gate.gate + token * p.gate.token_stride +
                                                         head * p.gate.head_stride + elem);
    value = make_float4(gated(value.x, gate.x), gated(value.y, gate.y), gated(value.z, gate.z),
                        gated(value.w, gate.w));
  }
  *reinterpret_cast<float4*>(p.y + (token * p.in.n_heads + head) * kHeadDim + elem) = value;
}

__device__ __forceinline__ void add_scaled(float4& sum, float factor, const float4& value) {
  sum.x += factor * value.x;
  sum.y += factor * value.y;
  sum.z += factor * value.z;
  sum.w += factor * value.w;
}

// Combines the splits of one kv head: a block, after all splits have been written.
template <int kHeadDim>
__device__ __forceinline__ void combine_splits(const AttentionSplitParams& p, int64_t token,
                                               int kv_head, int group, int n_used,
                                               const float4* partial, const float2* stats,
                                               float* scratch, float* totals) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  float* factors = scratch;  // [n_used, group]
  float4* slice_sums = reinterpret_cast<float4*>(scratch + (gridDim.y * group + 3) / 4 * 4);
  if (warp < group) {
    float top = minus_infinity(), total = 0.0f;
    for (int split = lane; split < n_used; split += kWarpSize) {
      top = fmaxf(top, __ldcg(&stats[split * group + warp].x));
    }
    top = warp_max(top);
    for (int split = lane; split < n_used; split += kWarpSize) {
      const float2 stat = __ldcg(&stats[split * group + warp]);
      const float factor = exp2_approx(stat.x - top);
      factors[split * group + warp] = factor;
      total += factor * stat.y;
    }
    total = warp_sum(total);
    if (lane == 0) {
      totals[warp] = total;
    }
  }
  __syncthreads();
  // Each thread has four elements of a slice of the splits.
  const int n_quartets = group * (kHeadDim / 4);
  const int n_slices = max(1, kSplitThreads / n_quartets);
  for (int item = threadIdx.x; item < n_slices * n_quartets; item += kSplitThreads) {
    const int slice = item / n_quartets, quartet = item % n_quartets;
    const int head = quartet / (kHeadDim / 4);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int split = slice; split < n_used; split += n_slices) {
      add_scaled(sum, factors[split * group + head],
                 load_shared_by_blocks(partial + split * n_quartets + quartet));
    }
    if (n_slices == 1) {
      store_result<kHeadDim>(p, token, kv_head * group + head, quartet % (kHeadDim / 4) * 4, sum,
                             totals[head]);
    } else {
      slice_sums[item] = sum;
    }
  }
  if (n_slices == 1) {
    return;
  }
  __syncthreads();
  if (threadIdx.x < n_quartets) {
    const int quartet = threadIdx.x, head = quartet / (kHeadDim / 4);
    float4 sum = slice_sums[quartet];
    for (int slice = 1; slice < n_slices; ++slice) {
      add_scaled(sum, 1.0f, slice_sums[slice * n_quartets + quartet]);
    }
    store_result<kHeadDim>(p, token, kv_head * group + head, quartet % (kHeadDim / 4) * 4, sum,
                           totals[head]);
  }
}

}  // namespace apr
