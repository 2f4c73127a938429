// Q4_0: ggml type 2; 32 weights, 4.5 bits each.
//   byte  0  d   f16
//   byte  2  qs  16 bytes: weight j in the low nibble of qs[j], weight 16 + j in the high one
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct Q4_0 {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 18;

#ifdef APR_HOST_CODE
  // out[j] = d * (q - 8)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    const uint8_t* qs = block + 2;
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[j] = d * static_cast<float>((qs[j] & 15) - 8);
    }
    APR_VECTOR_LOOP
    for (int j = 0; j < 16; ++j) {
      out[16 + j] = d * static_cast<float>((qs[j] >> 4) - 8);
    }
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {2, 16}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 8;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    constexpr int kAlign = Block::template align<1>();
    const uint32_t qs = load_u32<kAlign>(block.template at<1>(4 * (quartet % 4)));
    return qs >> (quartet < 4 ? 0 : 4) & 0x0f0f0f0fu;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    return {load_d<2>(block.template at<0>(0)), 0.0f};
  }
};

}  // namespace apr::quant
