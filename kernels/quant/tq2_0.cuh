// TQ2_0: ggml type 35; 256 ternary weights, 2.0625 bits each.
//   byte   0  qs  64 bytes: weight 128h + 32g + l in bits 2g, 2g + 1 of qs[32h + l]
//   byte  64  d   f16
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct TQ2_0 {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 66;

#ifdef APR_HOST_CODE
  // out = d * (q - 1)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block + 64);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* qs = block + 32 * half;
      float* y = out + 128 * half;
      for (int l = 0; l < 32; ++l) {
        y[l] = d * static_cast<float>((qs[l] & 3) - 1);
        y[32 + l] = d * static_cast<float>(((qs[l] >> 2) & 3) - 1);
        y[64 + l] = d * static_cast<float>(((qs[l] >> 4) & 3) - 1);
        y[96 + l] = d * static_cast<float>((qs[l] >> 6) - 1);
      }
    }
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {64, 2}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 1;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int half = quartet / 32, group = quartet / 8 % 4;
    const uint32_t qs =
        load_u32<Block::template align<0>()>(block.template at<0>(32 * half + 4 * (quartet % 8)));
    return qs >> (2 * group) & 0x03030303u;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    return {load_d<2>(block.template at<1>(0)), 0.0f};
  }
};

}  // namespace apr::quant
