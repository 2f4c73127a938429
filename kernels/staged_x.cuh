// The input of a matvec in shared memory, as integers of 16 bits: every 32 values have one scale,
// x = scale * (256 * high + low), kept as two planes of int8 that tensor cores take.
#pragma once

#include "matvec_layout.cuh"
#include "max_or_nan.cuh"
#include "params.h"
#include "reduce.cuh"

namespace apr {

constexpr float kLargestQuant = 32512.0f;  // high and low fit in int8: 127 * 256

// The parts of a staged x in shared memory.
struct StagedX {
  int8_t* planes;  // [2, plane_bytes]: high, low
  float* scales;   // [staged_cols / 32]
  int32_t* sums;   // [staged_cols / group] of the integers of a group
  int plane_bytes;

  __device__ StagedX(void* shared, int n_cols)
      : planes(static_cast<int8_t*>(shared)), plane_bytes(staged_plane_bytes(n_cols)) {
    scales = reinterpret_cast<float*>(planes + 2 * plane_bytes);
    sums = reinterpret_cast<int32_t*>(scales + staged_cols(n_cols) / kScaleElems);
  }
};

// Stages 32 values, four in each of eight lanes: `v` of quartet `quartet` in this lane. A value
// that is not finite must show in the result.
template <int kGroupElems>
__device__ __forceinline__ void stage_quartet(const StagedX& staged, int quartet, const float4& v) {
  float largest =
      max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w)));
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2) {
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  const float up = largest > 0.0f ? __fdiv_rn(kLargestQuant, largest) : 0.0f;
  const int quants[4] = {__float2int_rn(v.x * up), __float2int_rn(v.y * up),
                         __float2int_rn(v.z * up), __float2int_rn(v.w * up)};
  uint32_t high = 0, low = 0;
  int sum = 0;
#pragma unroll
  for (int elem = 0; elem < 4; ++elem) {
    const int quant = min(max(quants[elem], -32512), 32512);
    high |= static_cast<uint32_t>((quant + 128) >> 8 & 255) << (8 * elem);
    low |= static_cast<uint32_t>(quant & 255) << (8 * elem);
    sum += quant;
  }
  *reinterpret_cast<uint32_t*>(staged.planes + 4 * quartet) = high;
  *reinterpret_cast<uint32_t*>(staged.planes + staged.plane_bytes + 4 * quartet) = low;
#pragma unroll
  for (int distance = 1; distance < kGroupElems / 4; distance *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (quartet % (kGroupElems / 4) == 0) {
    staged.sums[quartet / (kGroupElems / 4)] = sum;
  }
  if (quartet % (kScaleElems / 4) == 0) {
    staged.scales[quartet / (kScaleElems / 4)] = largest / kLargestQuant;
  }
}

constexpr int kHeldQuartets = 4;  // of x and the norm's weights, in the registers of a thread

// The norm's weights that this thread will need, which do not depend on the kernel before.
struct HeldNorm {
  float4 weights[kHeldQuartets];
};

__device__ __forceinline__ float4 quartet_or_zero(const float* values, int quartet, int n_cols) {
  return quartet < n_cols / 4 ? reinterpret_cast<const float4*>(values)[quartet]
                              : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

__device__ __forceinline__ void hold_norm(const MatvecParams& p, int n_cols, HeldNorm& held) {
  if (p.norm_weight != nullptr) {
#pragma unroll
    for (int idx = 0; idx < kHeldQuartets; ++idx) {
      held.weights[idx] = quartet_or_zero(p.norm_weight, threadIdx.x + idx * blockDim.x, n_cols);
    }
  }
}

// Stages norm(x) by the whole block; `scratch` as block_sum. A barrier must follow. What a thread
// has of x is loaded at once, for the loads' latency is most of the time this takes.
template <int kGroupElems>
__device__ __forceinline__ void stage_x(const MatvecParams& p, int n_cols, const HeldNorm& held,
                                        const StagedX& staged, float* scratch) {
  const int n_quartets = staged_cols(n_cols) / 4;
  const int round = kHeldQuartets * blockDim.x;
  float4 v[kHeldQuartets];
#pragma unroll
  for (int idx = 0; idx < kHeldQuartets; ++idx) {
    v[idx] = quartet_or_zero(p.x, threadIdx.x + idx * blockDim.x, n_cols);
  }
  float norm_scale = 1.0f;
  if (p.norm_weight != nullptr) {
    float sum = 0.0f;
#pragma unroll
    for (int idx = 0; idx < kHeldQuartets; ++idx) {
      sum +=
          v[idx].x * v[idx].x + v[idx].y * v[idx].y + (v[idx].z * v[idx].z + v[idx].w * v[idx].w);
    }
    for (int quartet = threadIdx.x + round; quartet < n_cols / 4; quartet += blockDim.x) {
      const float4 more = reinterpret_cast<const float4*>(p.x)[quartet];
      sum += more.x * more.x + more.y * more.y + (more.z * more.z + more.w * more.w);
    }
    const float mean = __fdiv_rn(block_sum(sum, scratch), static_cast<float>(n_cols));
    norm_scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
  }
  for (int first = 0; first < n_quartets; first += round) {
#pragma unroll
    for (int idx = 0; idx < kHeldQuartets; ++idx) {
      const int quartet = first + threadIdx.x + idx * blockDim.x;
      if (first > 0) {
        v[idx] = quartet_or_zero(p.x, quartet, n_cols);
      }
      if (p.norm_weight != nullptr) {
        const float4 w =
            first == 0 ? held.weights[idx] : quartet_or_zero(p.norm_weight, quartet, n_cols);
        v[idx] = make_float4(v[idx].x * norm_scale * w.x, v[idx].y * norm_scale * w.y,
                             v[idx].z * norm_scale * w.z, v[idx].w * norm_scale * w.w);
      }
    }
#pragma unroll
    for (int idx = 0; idx < kHeldQuartets; ++idx) {
      const int quartet = first + threadIdx.x + idx * blockDim.x;
      if (quartet < n_quartets) {  // whole warps: n_quartets counts 64s
        stage_quartet<kGroupElems>(staged, quartet, v[idx]);
      }
    }
  }
}

}  // namespace apr
