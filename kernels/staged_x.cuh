// The input of a matvec in shared memory, as integers of 16 bits: every 32 values have one scale,
// x = scale * (256 * high + low), kept as two planes of int8 that tensor cores take.
//
// All blocks of a launch do this at the same time and wait for it, so it is short code without
// branches: what counts is how long one value takes, instruction fetches included.
#pragma once

#include "matvec_layout.cuh"
#include "max_or_nan.cuh"
#include "params.h"
#include "reciprocal.cuh"
#include "reduce.cuh"

namespace apr {

constexpr float kLargestQuant = 32512.0f;  // high and low fit in int8: 127 * 256
constexpr int kStagingThreads = kMatvecWarps * kWarpSize;
constexpr int kOctetLanes = kScaleElems / 8;  // that share a scale

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

// Byte kByte of four words.
template <int kByte>
__device__ __forceinline__ uint32_t bytes_of(const uint32_t* words) {
  constexpr uint32_t kPair = kByte | (4 + kByte) << 4;
  return quant::byte_perm(quant::byte_perm(words[0], words[1], kPair),
                          quant::byte_perm(words[2], words[3], kPair), 0x5410);
}

// Of 32 values the largest must be so large that they have a scale, and its inverse is finite.
constexpr float kLeastStaged = 0x1p-100f;

// Stages 32 values, eight in each of four lanes: `v` of octet `octet` in this lane. A value that is
// not finite, or too large to have a scale, must show in the result; 32 that are all below
// kLeastStaged count as zeros.
template <int kGroupElems>
__device__ __forceinline__ void stage_octet(const StagedX& staged, int octet, const float (&v)[8]) {
  float largest = max_or_nan(
      max_or_nan(max_or_nan(fabsf(v[0]), fabsf(v[1])), max_or_nan(fabsf(v[2]), fabsf(v[3]))),
      max_or_nan(max_or_nan(fabsf(v[4]), fabsf(v[5])), max_or_nan(fabsf(v[6]), fabsf(v[7]))));
#pragma unroll
  for (int distance = 1; distance < kOctetLanes; distance *= 2) {
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  const bool has_scale = largest < kMostReciprocal;  // no NaN either
  const float up =
      has_scale && largest >= kLeastStaged ? kLargestQuant * reciprocal(largest) : 0.0f;
  // Added to 1.5 * 2^23, a value leaves its nearest integer in the low bits.
  constexpr uint32_t kRounderBits = 0x4b400000u;
  uint32_t quants[8], shifted[8];
  uint32_t sum = 0;
#pragma unroll
  for (int elem = 0; elem < 8; ++elem) {
    quants[elem] = __float_as_uint(__fmaf_rn(v[elem], up, __uint_as_float(kRounderBits)));
    shifted[elem] = quants[elem] + 128;  // so that the low byte may be signed
    sum += quants[elem] - kRounderBits;
  }
  int8_t* const high = staged.planes + 8 * octet;
  *reinterpret_cast<uint2*>(high) = make_uint2(bytes_of<1>(shifted), bytes_of<1>(shifted + 4));
  *reinterpret_cast<uint2*>(high + staged.plane_bytes) =
      make_uint2(bytes_of<0>(quants), bytes_of<0>(quants + 4));
#pragma unroll
  for (int distance = 1; distance < kGroupElems / 8; distance *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (octet % (kGroupElems / 8) == 0) {
    staged.sums[octet / (kGroupElems / 8)] = static_cast<int32_t>(sum);
  }
  if (octet % kOctetLanes == 0) {
    staged.scales[octet / kOctetLanes] =
        largest * (has_scale ? 1.0f / kLargestQuant : __uint_as_float(0x7f800000u));
  }
}

// Values [8 octet, + 8), zeros from n_cols on.
__device__ __forceinline__ void load_octet(const float* values, int octet, int n_cols,
                                           float (&v)[8]) {
  const bool is_there = 8 * octet < n_cols;
  const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const float4* from = reinterpret_cast<const float4*>(values) + 2 * octet;
  const float4 first = is_there ? from[0] : none, second = is_there ? from[1] : none;
  v[0] = first.x;
  v[1] = first.y;
  v[2] = first.z;
  v[3] = first.w;
  v[4] = second.x;
  v[5] = second.y;
  v[6] = second.z;
  v[7] = second.w;
}

// The norm's weights of a thread's next octet.
__device__ __forceinline__ void hold_norm(const MatvecParams& p, int octet, int n_cols,
                                          float (&held)[8]) {
  if (p.norm_weight != nullptr) {
    load_octet(p.norm_weight, octet, n_cols, held);
  }
}

// Stages x, with a norm times its weights, by the whole block; then leaves each warp's sum of
// squares of x for norm_factor(). `held`: of octet threadIdx.x. A barrier must follow.
template <int kGroupElems>
__device__ __forceinline__ void stage_x(const MatvecParams& p, int n_cols, float (&held)[8],
                                        const StagedX& staged, float* square_sums) {
  const int n_octets = staged_cols(n_cols) / 8;  // whole warps: units have 32
  float squares = 0.0f;
  float next[8];
  load_octet(p.x, threadIdx.x, n_cols, next);
#pragma unroll 1
  for (int octet = threadIdx.x; octet < n_octets; octet += kStagingThreads) {
    float v[8];
#pragma unroll
    for (int elem = 0; elem < 8; ++elem) {
      v[elem] = next[elem];
    }
    load_octet(p.x, octet + kStagingThreads, n_cols, next);
    if (p.norm_weight != nullptr) {
#pragma unroll
      for (int elem = 0; elem < 8; ++elem) {
        squares += v[elem] * v[elem];
        v[elem] *= held[elem];
      }
      hold_norm(p, octet + kStagingThreads, n_cols, held);
    }
    stage_octet<kGroupElems>(staged, octet, v);
  }
  if (p.norm_weight != nullptr) {
    squares = warp_sum(squares);
    if (threadIdx.x % kWarpSize == 0) {
      square_sums[threadIdx.x / kWarpSize] = squares;
    }
  }
}

// What the products of a staged x lack of norm(x): 1 / sqrt(mean(x^2) + eps), 1 without a norm.
__device__ __forceinline__ float norm_factor(const MatvecParams& p, const float* square_sums) {
  if (p.norm_weight == nullptr) {
    return 1.0f;
  }
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kMatvecWarps; ++warp) {
    sum += square_sums[warp];
  }
  return __frsqrt_rn(__fmaf_rn(sum, p.per_col, p.eps));
}

}  // namespace apr
