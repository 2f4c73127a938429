// Q8_0: ggml type 8; 32 weights, 8.5 bits each.
//   byte  0  d   f16
//   byte  2  qs  int8[32]
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct Q8_0 {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 34;

#ifdef APR_HOST_CODE
  // out[j] = d * q
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    const uint8_t* qs = block + 2;
    for (int j = 0; j < 32; ++j) {
      out[j] = d * static_cast<float>(static_cast<int8_t>(qs[j]));
    }
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {2, 32}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    constexpr int kAlign = Block::template align<1>();
    return load_u32<kAlign>(block.template at<1>(4 * quartet)) ^ sign_bits(0x80808080u);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    return {load_d<2>(block.template at<0>(0)), 0.0f};
  }
};

}  // namespace apr::quant
