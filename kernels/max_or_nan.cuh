// A maximum that keeps what is not a number.
#pragma once

#include "platform.cuh"

namespace apr {

// The larger value, NaN if either is (sm_80 and later).
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

}  // namespace apr
