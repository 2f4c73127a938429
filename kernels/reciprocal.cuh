// A reciprocal without a branch.
#pragma once

#include "platform.cuh"

namespace apr {

// What reciprocal() takes.
constexpr float kLeastReciprocal = 0x1p-125f, kMostReciprocal = 0x1p125f;

// 1 / x within an ulp, the same bits on every GPU: Newton's steps from a guess by the exponent.
__device__ __forceinline__ float reciprocal(float x) {
  float y = __uint_as_float(0x7ef311c7u - __float_as_uint(x));  // within 0.051 of it
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    y = __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
  }
  return y;
}

}  // namespace apr
