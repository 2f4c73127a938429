// Reading the fields of a block: little endian, any alignment. Files under quant/ reach the
// conversions of f16.cuh through this one: a quoted "f16.cuh" there names quant/f16.cuh.
#pragma once

#include "f16.cuh"

namespace apr::quant {

#ifdef APR_HOST_CODE

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

APR_INLINE float load_f16(const uint8_t* bytes) {
  return f16_to_f32(load_u16(bytes));
}

// Bit j of `bits` as byte j of the result, 0 or 1.
APR_INLINE uint64_t spread_bits(uint8_t bits) {
  // Byte j keeps only bit j; adding 0x7f carries any bit into the byte's top one.
  const uint64_t kept = (bits * 0x0101010101010101u) & 0x8040201008040201u;
  return ((kept + 0x7f7f7f7f7f7f7f7fu) >> 7) & 0x0101010101010101u;
}

#endif  // APR_HOST_CODE

}  // namespace apr::quant
