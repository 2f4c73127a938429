// Q2_K: ggml type 10; 256 weights in 16 sub-blocks of 16, 2.625 bits each.
//   byte   0  scales  16 bytes: scale in the low nibble, min in the high one
//   byte  16  qs      64 bytes, four weights each
//   byte  80  d       f16, scale of the scales
//   byte  82  dmin    f16, scale of the minima
// Weight 128h + 32g + l (h 0..1, g 0..3, l 0..31): bits qs[32h + l] >> 2g, sub-block
// 8h + 2g + l / 16.
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct Q2_K {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 84;

#ifdef APR_HOST_CODE
  // out = (d * scale) * q - dmin * min
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const uint8_t* scales = block;
    const float d = load_scale(block + 80);
    const float dmin = load_scale(block + 82);
    float sub_d[16], sub_min[16];
    APR_VECTOR_LOOP
    for (int sub = 0; sub < 16; ++sub) {
      sub_d[sub] = d * static_cast<float>(scales[sub] & 15);
      sub_min[sub] = dmin * static_cast<float>(scales[sub] >> 4);
    }
    // One step is 16 values of l of each of the four groups g of one half: constant scales.
    for (int step = 0; step < 4; ++step) {
      const int half = step >> 1, l_high = step & 1;
      const uint8_t* qs = block + 16 + 32 * half + 16 * l_high;
      const float* dl = sub_d + 8 * half + l_high;
      const float* ml = sub_min + 8 * half + l_high;
      float* y = out + 128 * half + 16 * l_high;
      APR_VECTOR_LOOP
      for (int l = 0; l < 16; ++l) {
        y[l] = dl[0] * static_cast<float>(qs[l] & 3) - ml[0];
        y[32 + l] = dl[2] * static_cast<float>((qs[l] >> 2) & 3) - ml[2];
        y[64 + l] = dl[4] * static_cast<float>((qs[l] >> 4) & 3) - ml[4];
        y[96 + l] = dl[6] * static_cast<float>(qs[l] >> 6) - ml[6];
      }
    }
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {16, 64, 4}, kRawAlign = 4;
  static constexpr int kGroupElems = 16, kQuantBias = 0;
  static constexpr bool kHasOffset = true;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int half = quartet / 32, group = quartet / 8 % 4;
    const uint32_t qs =
        load_u32<Block::template align<1>()>(block.template at<1>(32 * half + 4 * (quartet % 8)));
    return qs >> (2 * group) & 0x03030303u;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    constexpr int kAlign = Block::template align<2>();
    const uint32_t scale_min = *block.template at<0>(group);
    const uint8_t* d = block.template at<2>(0);
    return {mul_rn(load_d<kAlign>(d), static_cast<float>(scale_min & 15)),
            negated(mul_rn(load_d<kAlign>(d + 2), static_cast<float>(scale_min >> 4)))};
  }
};

}  // namespace apr::quant
