// Over kernels/f16_pair.cuh.
#pragma once

#include "f16_value.cuh"

namespace apr {

inline uint32_t subtract_f16_pairs(uint32_t a, uint32_t b) {
  uint32_t difference = 0;
  for (int half = 0; half < 2; ++half) {
    const float value = f16_value(a >> 16 * half & 0xffff) - f16_value(b >> 16 * half & 0xffff);
    difference |= static_cast<uint32_t>(f16_bits(value)) << 16 * half;
  }
  return difference;
}

}  // namespace apr
