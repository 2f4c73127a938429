// Arithmetic that host and device round alike: no contraction, conversions exact.
#pragma once

#include "f16.cuh"

namespace apr {

// The value of an IEEE binary16 pattern.
APR_DEVICE float f16_value(uint32_t bits) {
#ifdef APR_DEVICE_CODE
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
#else
  return f16_to_f32(static_cast<uint16_t>(bits));
#endif
}

// The IEEE binary16 pattern nearest to a value, ties to even; from 65520 on infinity, a NaN 0x7fff.
APR_DEVICE uint16_t f16_bits(float value) {
#ifdef APR_DEVICE_CODE
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const uint32_t sign = f32_bits(value) >> 16 & 0x8000u;
  const uint32_t magnitude = f32_bits(value) & 0x7fffffffu;
  uint32_t half = 0x7fffu;  // of a NaN, which has no sign here
  if (magnitude < 0x38800000u) {
    // Below 2^-14: the sum with 0.5 rounds to multiples of 2^-24, the smallest pattern.
    half = sign | (f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f));
  } else if (magnitude < 0x477ff000u) {
    // Rebiased from 127 to 15; what rounds up carries into the exponent.
    half = sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  } else if (magnitude <= 0x7f800000u) {
    half = sign | 0x7c00u;
  }
  return static_cast<uint16_t>(half);
#endif
}

APR_DEVICE float f32_of_bits(uint32_t bits) {
#ifdef APR_DEVICE_CODE
  return __uint_as_float(bits);
#else
  return f32_from_bits(bits);
#endif
}

APR_DEVICE float mul_rn(float a, float b) {
#ifdef APR_DEVICE_CODE
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

APR_DEVICE float add_rn(float a, float b) {
#ifdef APR_DEVICE_CODE
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

}  // namespace apr
