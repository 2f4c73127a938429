// Q5_0: ggml type 6; 32 weights, 5.5 bits each.
//   byte  0  d   f16
//   byte  2  qh  u32: bit j is the fifth bit of weight j
//   byte  6  qs  16 bytes: weight j in the low nibble of qs[j], weight 16 + j in the high one
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

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

  static constexpr int kSegments = 3, kSegmentBytes[] = {2, 4, 16}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 16;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const uint32_t qs =
        load_u32<Block::template align<2>()>(block.template at<2>(4 * (quartet % 4)));
    const uint32_t qh = load_u32<Block::template align<1>()>(block.template at<1>(0));
    const uint32_t fifth = high_bits(spread4(qh >> (4 * quartet)));
    return (qs >> (quartet < 4 ? 0 : 4) & 0x0f0f0f0fu) | fifth << 4;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    return {load_d<2>(block.template at<0>(0)), 0.0f};
  }
};

}  // namespace apr::quant
