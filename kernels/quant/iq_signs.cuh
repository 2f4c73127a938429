// Signs and scales of the IQ2 and IQ3 types: a group of eight magnitudes is the bytes of one word.
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

#ifdef APR_HOST_CODE

// The eight sign bits of a group from the seven that are stored (the low ones of `bits`): the last
// one makes their number even.
APR_INLINE uint8_t complete_signs(uint32_t bits) {
  const uint32_t low = bits & 127;
  return static_cast<uint8_t>(low | (static_cast<uint32_t>(__builtin_parity(low)) << 7));
}

// Bytes 1..127 to int8: byte j negated where bit j of `signs` is set.
APR_INLINE uint64_t apply_signs(uint64_t magnitudes, uint8_t signs) {
  const uint64_t ones = spread_bits(signs);
  // Two's complement in each byte; no carry leaves a byte because no magnitude is 0.
  return (magnitudes ^ (ones * 255)) + ones;
}

// out[i] = sub_d[i / kSubElems] * int8 i of words; words: [32] of eight int8, out: [256] f32.
template <int kSubElems>
APR_INLINE void scale_signed_bytes(const uint64_t* words, const float* sub_d,
                                   float* __restrict__ out) {
  int8_t q[256];
  std::memcpy(q, words, sizeof q);
  for (int sub = 0; sub < 256 / kSubElems; ++sub) {
    APR_VECTOR_LOOP
    for (int j = 0; j < kSubElems; ++j) {
      out[kSubElems * sub + j] = sub_d[sub] * static_cast<float>(q[kSubElems * sub + j]);
    }
  }
}

#endif  // APR_HOST_CODE

APR_DEVICE uint32_t count_bits(uint32_t bits) {
#ifdef APR_DEVICE_CODE
  return __popc(bits);
#else
  return static_cast<uint32_t>(__builtin_popcount(bits));
#endif
}

// Sign bits 4 half .. 4 half + 3 of a group in bits 0..3, from the seven that are stored (the low
// ones of `bits`), as complete_signs(); bits 4..6 mean nothing, those above are 0.
APR_DEVICE uint32_t half_of_signs(uint32_t bits, int half) {
  const uint32_t low = bits & 127;
  return (low >> (4 * half)) + count_bits(low) * static_cast<uint32_t>(8 * half);
}

// Four magnitudes 1..127, negated where bits 0..3 of `signs` (below 128) are set, biased by 128:
// 128 + m is m ^ 0x80, 128 - m is (m ^ 0x7f) + 1.
APR_DEVICE uint32_t signed_quants(uint32_t magnitudes, uint32_t signs) {
  // Bit k times the constant is bits k, k + 7, k + 14, k + 21: no two of seven bits meet.
  const uint32_t ones = sign_bits(signs) * 0x00204081u & 0x01010101u;
  return (magnitudes ^ (ones * 255) ^ 0x80808080u) + ones;
}

}  // namespace apr::quant
