// Powers of two that bring values into the range of f16.
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

}  // namespace apr
