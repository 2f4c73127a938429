// IQ4_XS: ggml type 23; 256 weights in 8 sub-blocks of 32, 4.25 bits each, on the levels of IQ4_NL.
//   byte  0  d         f16
//   byte  2  scales_h  u16: bits 2s, 2s + 1 are the high bits of scale s
//   byte  4  scales_l  4 bytes: low 4 bits of scale 2c in the low nibble of byte c, 2c + 1 in the
//                      high one
//   byte  8  qs        128 bytes: of sub-block s, weight j in the low nibble of qs[16s + j], weight
//                      16 + j in the high one
#pragma once

#include "quant/levels16.cuh"

namespace apr::quant {

struct IQ4_XS {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 136;

#ifdef APR_HOST_CODE
  // out = (d * (scale - 32)) * level[q]
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    const uint32_t scales_h = load_u16(block + 2);
    const uint32_t scales_l = load_u32(block + 4);
    for (int sub = 0; sub < 8; ++sub) {
      const uint32_t scale = ((scales_l >> (4 * sub)) & 15) | (((scales_h >> (2 * sub)) & 3) << 4);
      const float dl = d * static_cast<float>(static_cast<int>(scale) - 32);
      scale_nibble_levels(kIq4Levels, block + 8 + 16 * sub, dl, out + 32 * sub);
    }
  }
#endif
};

}  // namespace apr::quant
