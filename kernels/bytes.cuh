// Reading the fields of a block: little endian, any alignment. Files under quant/ reach the
// conversions of f16.cuh through this one: a quoted "f16.cuh" there names quant/f16.cuh.
#pragma once

#include "f16.cuh"

#if defined(APR_HOST_CODE) && defined(__SSSE3__)
#include <immintrin.h>
#endif

namespace apr::quant {

#ifdef APR_HOST_CODE

// Stands before a loop of at most 16 steps that is to become vector code: g++ would unroll it whole
// before its vectoriser comes, and leave scalar code of a fifth of the speed.
#define APR_VECTOR_LOOP _Pragma("GCC unroll 1")

APR_INLINE uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

APR_INLINE uint32_t load_u32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// An f16 that scales a block. The instruction differs from f16_to_f32 only in making a signalling
// NaN quiet, which the product with the scale does anyway.
APR_INLINE float load_scale(const uint8_t* bytes) {
#ifdef __F16C__
  return _cvtsh_ss(load_u16(bytes));
#else
  return f16_to_f32(load_u16(bytes));
#endif
}

// Bit j of `bits` as byte j of the result, 0 or 1.
APR_INLINE uint64_t spread_bits(uint8_t bits) {
  // Byte j keeps only bit j; adding 0x7f carries any bit into the byte's top one.
  const uint64_t kept = (bits * 0x0101010101010101u) & 0x8040201008040201u;
  return ((kept + 0x7f7f7f7f7f7f7f7fu) >> 7) & 0x0101010101010101u;
}

// Bit j of the u32 at `bits` as bit 4 of high[j]; high: [32].
APR_INLINE void spread_fifth_bits(const uint8_t* bits, uint8_t* high) {
  uint64_t words[4];
  for (int word = 0; word < 4; ++word) {
    words[word] = spread_bits(bits[word]) << 4;
  }
  std::memcpy(high, words, sizeof words);
}

#endif  // APR_HOST_CODE

}  // namespace apr::quant
