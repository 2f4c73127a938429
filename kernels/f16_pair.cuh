// Arithmetic on pairs of f16 (sm_80 and later).
#pragma once

#include "platform.cuh"

namespace apr {

// a - b, each rounded to nearest even.
__device__ __forceinline__ uint32_t subtract_f16_pairs(uint32_t a, uint32_t b) {
  uint32_t difference;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}

}  // namespace apr
