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
