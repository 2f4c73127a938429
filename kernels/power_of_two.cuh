// Powers of two that bring values into the range of f16 or E4M3.
#pragma once

#include "platform.cuh"

namespace apr {

struct PowerOfTwo {
  float up, down;  // 2^e and 2^-e
};

// 2^e with largest * 2^e in [2^13, 2^14); 1 for zero and non-finite values.
__device__ __forceinline__ PowerOfTwo power_to_f16(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  const bool scalable = largest > 0.0f && exponent < 128;
  const int shift = scalable ? min(max(13 - exponent, -126), 126) : 0;
  return {__uint_as_float(static_cast<uint32_t>(127 + shift) << 23),
          __uint_as_float(static_cast<uint32_t>(127 - shift) << 23)};
}

// E4M3 rows and weights are 2^-6 of what f16 ones are: their largest |value| is in [2^7, 2^8), the
// last binade that is whole. Whoever undoes the f16 powers of a product undoes this, too.
constexpr float kUndoE4m3Product = 0x1p12f;

// The power for E4M3; NaN for an infinity, which has no code and must not pass for 448.
__device__ __forceinline__ float up_to_e4m3(float largest) {
  const float up = power_to_f16(largest).up * 0x1p-6f;
  return __float_as_uint(largest) == 0x7f800000u ? __uint_as_float(0x7fc00000u) : up;
}

}  // namespace apr
