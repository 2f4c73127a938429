// The power of two that the hardware has.
#pragma once

#include "platform.cuh"

namespace apr {

// To 2 ulp; 0 for minus infinity.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace apr
