// Quants of a block type as f16, for tensor cores (sm_80 and later).
#pragma once

#include "f16_pair.cuh"
#include "quant/device.cuh"

namespace apr {

// q of four bytes u = q + kBias as f16, two and two: exact. 1024 + u is the f16 of bits 0x6400 | u.
template <int kBias>
__device__ __forceinline__ void exact_f16(uint32_t bytes, uint32_t& first, uint32_t& second) {
  constexpr uint32_t kZero = (0x6400u | kBias) * 0x10001u;
  first = subtract_f16_pairs(quant::byte_perm(bytes, 0x64646464u, 0x4140), kZero);
  second = subtract_f16_pairs(quant::byte_perm(bytes, 0x64646464u, 0x4342), kZero);
}

}  // namespace apr
