// Over kernels/f16_value.cuh: its conversions by the compiler's own type.
#pragma once

#include "platform.cuh"

namespace apr {

inline float f16_value(uint32_t bits) {
  const uint16_t half = static_cast<uint16_t>(bits);
  _Float16 value;
  std::memcpy(&value, &half, sizeof value);
  return static_cast<float>(value);
}

inline uint16_t f16_bits(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

inline float f32_of_bits(uint32_t bits) {
  return __uint_as_float(bits);
}
inline float mul_rn(float a, float b) {
  return a * b;
}
inline float add_rn(float a, float b) {
  return a + b;
}

}  // namespace apr
