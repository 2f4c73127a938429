// 16-bit floats to f32, exactly: every pattern keeps its value; a NaN keeps sign and payload.
#pragma once

#include "platform.cuh"

namespace apr {

#ifdef APR_HOST_CODE

APR_INLINE float f32_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

APR_INLINE uint32_t f32_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// IEEE binary16 (1 sign, 5 exponent, 10 mantissa bits) to f32. Masks instead of selects, which g++
// turns into branches: a loop over this vectorises. F16C's instruction is not used because it makes
// signalling NaNs quiet.
APR_INLINE float f16_to_f32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t is_special = 0u - static_cast<uint32_t>(magnitude >= 0x7c00u);
  const uint32_t is_subnormal = 0u - static_cast<uint32_t>(magnitude < 0x0400u);
  // Normal: rebias the exponent from 15 to 127. Infinity and NaN: from 31 to 255.
  const uint32_t normal = (magnitude << 13) + (112u << 23) + (is_special & (112u << 23));
  // Subnormal and zero: mantissa x 2^-24, a normal number of f32.
  const float scaled = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  return f32_from_bits(sign | (f32_bits(scaled) & is_subnormal) | (normal & ~is_subnormal));
}

// bfloat16 is the upper half of an f32.
APR_INLINE float bf16_to_f32(uint16_t brain) {
  return f32_from_bits(static_cast<uint32_t>(brain) << 16);
}

#endif  // APR_HOST_CODE

}  // namespace apr
