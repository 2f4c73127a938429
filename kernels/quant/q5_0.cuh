// Q5_0: ggml type 6; 32 weights, 5.5 bits each.
//   byte  0  d   f16
//   byte  2  qh  u32: bit j is the fifth bit of weight j
//   byte  6  qs  16 bytes: weight j in the low nibble of qs[j], weight 16 + j in the high one
#pragma once

#include "bytes.cuh"

namespace apr::quant {

struct Q5_0 {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 22;

#ifdef APR_HOST_CODE
  // out[j] = d * (q - 16)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    uint8_t high[32];
    spread_fifth_bits(block + 2, high);
    const uint8_t* qs = block + 6;
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[j] = d * static_cast<float>(((qs[j] & 15) | high[j]) - 16);
    }
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[16 + j] = d * static_cast<float>(((qs[j] >> 4) | high[16 + j]) - 16);
    }
  }
#endif
};

}  // namespace apr::quant
