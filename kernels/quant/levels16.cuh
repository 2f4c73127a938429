// Types whose nibbles select one of 16 levels: the level tables and the lookup.
#pragma once

#include "bytes.cuh"

namespace apr::quant {

// IQ4_NL and IQ4_XS (ggml's kvalues_iq4nl).
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 (1 sign, 2 exponent, 1 mantissa bit), doubled to be integers.
inline constexpr int8_t kE2m1DoubledLevels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                  0, -1, -2, -3, -4, -6, -8, -12};

#ifdef APR_HOST_CODE
// level[j] = levels[low nibble of qs[j]], level[16 + j] = levels[high nibble]; qs: [16], level:
// [32].
APR_INLINE void lookup_nibbles(const int8_t* levels, const uint8_t* qs, int8_t* level) {
  for (int j = 0; j < 16; ++j) {
    level[j] = levels[qs[j] & 15];
  }
  for (int j = 0; j < 16; ++j) {
    level[16 + j] = levels[qs[j] >> 4];
  }
}
#endif

}  // namespace apr::quant
