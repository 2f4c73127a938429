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

  static constexpr int kSegments = 3, kSegmentBytes[] = {4, 4, 128}, kRawAlign = 8;
  static constexpr int kGroupElems = 32, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int sub = quartet / 8;
    const uint32_t qs =
        load_u32<Block::template align<2>()>(block.template at<2>(16 * sub + 4 * (quartet % 4)));
    return biased_levels(kIq4Biased, qs >> (quartet % 8 < 4 ? 0 : 4) & 0x0f0f0f0fu);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    constexpr int kAlign = Block::template align<0>();
    const uint8_t* d = block.template at<0>(0);
    const uint32_t low = *block.template at<1>(group / 2) >> (4 * (group % 2)) & 15;
    const uint32_t high = load_u16<kAlign>(d + 2) >> (2 * group) & 3;
    return {mul_rn(load_d<kAlign>(d),
                   static_cast<float>(static_cast<int>(low | high_bits(high) << 4) - 32)),
            0.0f};
  }
};

}  // namespace apr::quant
