// The 8-bit float E4M3: 1 sign, 4 exponent, 3 mantissa bits, no infinity; the largest value is 448,
// the smallest normal 2^-6, the smallest 2^-9. sm_89 and later; on the host plain loops.
#pragma once

#include "platform.cuh"

namespace apr {

#ifndef __CUDACC_RTC__

// The value of a code, exactly; of 0x7f and 0xff a NaN.
APR_DEVICE float e4m3_value(uint32_t code) {
  const uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
  if ((code & 0x7fu) == 0x7fu) {
    return __builtin_nanf("");
  }
  float magnitude = static_cast<float>(exponent == 0 ? mantissa : 8u + mantissa) * 0x1p-9f;
  for (uint32_t doubling = 1; doubling < exponent; ++doubling) {
    magnitude *= 2.0f;
  }
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

// Codes ascend with their values; an even one also takes the middle below it.
APR_DEVICE uint8_t nearest_e4m3(float value) {
  static const struct Middles {
    double below[0x7f];  // [code]
    Middles() : below{} {
      for (uint32_t code = 1; code < 0x7fu; ++code) {
        below[code] =
            (static_cast<double>(e4m3_value(code - 1)) + static_cast<double>(e4m3_value(code))) / 2;
      }
    }
  } middles;
  if (value != value) {
    return 0x7f;
  }
  const bool negative = __builtin_signbit(value) != 0;
  const double magnitude = negative ? -static_cast<double>(value) : value;
  uint32_t nearest = 0;
  for (uint32_t code = 1; code < 0x7fu; ++code) {
    const double middle = middles.below[code];
    nearest = magnitude > middle || (magnitude == middle && code % 2 == 0) ? code : nearest;
  }
  return static_cast<uint8_t>(negative ? nearest | 0x80u : nearest);
}

#endif  // __CUDACC_RTC__

// Two values to the nearest codes, ties to even, what is larger than 448 to 448, a NaN to 0x7f:
// `low` in bits 0..7.
APR_DEVICE uint16_t pack_e4m3(float low, float high) {
#ifdef __CUDACC_RTC__
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return static_cast<uint16_t>(nearest_e4m3(high) << 8 | nearest_e4m3(low));
#endif
}

APR_DEVICE uint8_t e4m3_bits(float value) {
  return static_cast<uint8_t>(pack_e4m3(value, 0.0f));
}

}  // namespace apr
