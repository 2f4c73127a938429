// Q4_1: ggml type 3; 32 weights, 5 bits each.
//   byte  0  d   f16
//   byte  2  m   f16, the minimum
//   byte  4  qs  16 bytes: weight j in the low nibble of qs[j], weight 16 + j in the high one
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct Q4_1 {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 20;

#ifdef APR_HOST_CODE
  // out[j] = d * q + m
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    const float m = load_scale(block + 2);
    const uint8_t* qs = block + 4;
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[j] = d * static_cast<float>(qs[j] & 15) + m;
    }
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[16 + j] = d * static_cast<float>(qs[j] >> 4) + m;
    }
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {4, 16}, kRawAlign = 4;
  static constexpr int kGroupElems = 32, kQuantBias = 0;
  static constexpr bool kHasOffset = true;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const uint32_t qs =
        load_u32<Block::template align<1>()>(block.template at<1>(4 * (quartet % 4)));
    return qs >> (quartet < 4 ? 0 : 4) & 0x0f0f0f0fu;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    constexpr int kAlign = Block::template align<0>();
    const uint8_t* d = block.template at<0>(0);
    return {load_d<kAlign>(d), load_d<kAlign>(d + 2)};
  }
};

}  // namespace apr::quant
