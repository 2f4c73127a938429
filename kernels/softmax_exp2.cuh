// Softmax on tensor cores: weights as powers of two.
#pragma once

#include "exp2.cuh"

namespace apr {

// Weights are 2^12 times exp(score - largest): f16 then holds those down to 2^-26 normally.
constexpr float kWeightShift = 12.0f;
constexpr float kLog2E = 1.44269504088896340736f;

// value * sigmoid(gate), to 2^-17
__device__ __forceinline__ float gated(float value, float gate) {
  return __fdividef(value, 1.0f + exp2_approx(-gate * kLog2E));
}

__device__ __forceinline__ float minus_infinity() {
  return __uint_as_float(0xff800000u);
}

}  // namespace apr
