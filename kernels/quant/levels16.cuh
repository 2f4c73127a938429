// Types whose nibbles select one of 16 levels: the level tables and the lookup.
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

// IQ4_NL and IQ4_XS (ggml's kvalues_iq4nl).
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 (1 sign, 2 exponent, 1 mantissa bit), doubled to be integers.
inline constexpr int8_t kE2m1DoubledLevels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                  0, -1, -2, -3, -4, -6, -8, -12};

#ifdef APR_HOST_CODE
// level[j] = levels[low nibble of qs[j]], level[16 + j] = levels[high nibble]; levels, qs: [16],
// level: [32]. g++ does not find the instruction that does sixteen look-ups at once.
APR_INLINE void lookup_nibbles(const int8_t* levels, const uint8_t* qs, int8_t* level) {
#ifdef __SSSE3__
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(qs));
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(packed, nibble);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(level), _mm_shuffle_epi8(table, low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(level + 16), _mm_shuffle_epi8(table, high));
#else
  for (int j = 0; j < 16; ++j) {
    level[j] = levels[qs[j] & 15];
    level[16 + j] = levels[qs[j] >> 4];
  }
#endif
}

// out[j] = d * levels[low nibble of qs[j]], out[16 + j] = d * levels[high nibble]; levels, qs:
// [16], out: [32] f32.
APR_INLINE void scale_nibble_levels(const int8_t* levels, const uint8_t* qs, float d,
                                    float* __restrict__ out) {
  int8_t level[32];
  lookup_nibbles(levels, qs, level);
  // Read back in the sixteens that were written: wider loads would wait for the stores to retire.
  for (int part = 0; part < 32; part += 16) {
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[part + j] = d * static_cast<float>(level[part + j]);
    }
  }
}
#endif

// Sixteen levels biased by 128, four to a word.
struct BiasedLevels {
  uint32_t words[4];
};
constexpr BiasedLevels bias_levels(const int8_t (&levels)[16]) {
  BiasedLevels biased{};
  for (int level = 0; level < 16; ++level) {
    biased.words[level / 4] |= static_cast<uint32_t>(levels[level] + 128) << (8 * (level % 4));
  }
  return biased;
}
inline constexpr BiasedLevels kIq4Biased = bias_levels(kIq4Levels);
inline constexpr BiasedLevels kE2m1Biased = bias_levels(kE2m1DoubledLevels);

// Levels of four nibbles, one a byte of `nibbles`. Taken by value: its words become constants.
APR_DEVICE uint32_t biased_levels(BiasedLevels levels, uint32_t nibbles) {
  const uint32_t pairs = (nibbles | nibbles >> 4) & 0x00ff00ffu;
  const uint32_t index = (pairs | pairs >> 8) & 0xffffu;  // four 4-bit indices
  const uint32_t low = byte_perm(levels.words[0], levels.words[1], index & 0x7777u);
  const uint32_t high = byte_perm(levels.words[2], levels.words[3], index & 0x7777u);
  return byte_perm(low, high, 0x3210u | sign_bits(index & 0x8888u) >> 1);
}

}  // namespace apr::quant
