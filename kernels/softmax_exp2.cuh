// Softmax on tensor cores: weights as powers of two.
#pragma once

#include "platform.cuh"

namespace apr {

// Weights are 2^12 times exp(score - largest): f16 then holds those down to 2^-26 normally.
constexpr float kWeightShift = 12.0f;
constexpr float kLog2E = 1.44269504088896340736f;

// To 2 ulp; 0 for minus infinity.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float minus_infinity() {
  return __uint_as_float(0xff800000u);
}

}  // namespace apr
