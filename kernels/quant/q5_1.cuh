// Q5_1: ggml type 7; 32 weights, 6 bits each.
//   byte  0  d   f16
//   byte  2  m   f16, the minimum
//   byte  4  qh  u32: bit j is the fifth bit of weight j
//   byte  8  qs  16 bytes: weight j in the low nibble of qs[j], weight 16 + j in the high one
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct Q5_1 {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 24;

#ifdef APR_HOST_CODE
  // out[j] = d * q + m
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    const float m = load_scale(block + 2);
    uint8_t high[32];
    spread_fifth_bits(block + 4, high);
    const uint8_t* qs = block + 8;
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[j] = d * static_cast<float>((qs[j] & 15) | high[j]) + m;
    }
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[16 + j] = d * static_cast<float>((qs[j] >> 4) | high[16 + j]) + m;
    }
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {4, 4, 16}, kRawAlign = 8;
  static constexpr int kGroupElems = 32, kQuantBias = 0;
  static constexpr bool kHasOffset = true;
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
    constexpr int kAlign = Block::template align<0>();
    const uint8_t* d = block.template at<0>(0);
    return {load_d<kAlign>(d), load_d<kAlign>(d + 2)};
  }
};

}  // namespace apr::quant
