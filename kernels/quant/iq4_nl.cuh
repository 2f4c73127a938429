// IQ4_NL: ggml type 20; 32 weights, 4.5 bits each, on 16 unevenly spaced levels.
//   byte  0  d   f16
//   byte  2  qs  16 bytes: weight j in the low nibble of qs[j], weight 16 + j in the high one
#pragma once

#include "quant/levels16.cuh"

namespace apr::quant {

struct IQ4_NL {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 18;

#ifdef APR_HOST_CODE
  // out[j] = d * level[q]
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    scale_nibble_levels(kIq4Levels, block + 2, d, out);
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {2, 16}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const uint32_t qs =
        load_u32<Block::template align<1>()>(block.template at<1>(4 * (quartet % 4)));
    return biased_levels(kIq4Biased, qs >> (quartet < 4 ? 0 : 4) & 0x0f0f0f0fu);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    return {load_d<2>(block.template at<0>(0)), 0.0f};
  }
};

}  // namespace apr::quant
