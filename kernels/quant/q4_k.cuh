// Q4_K: ggml type 12; 256 weights in 8 sub-blocks of 32, 4.5 bits each.
//   byte   0  d       f16, scale of the scales
//   byte   2  dmin    f16, scale of the minima
//   byte   4  scales  12 bytes: 8 scales and 8 minima of 6 bits, see scale_min_k4.cuh
//   byte  16  qs      128 bytes: sub-block 2c in the low nibbles of qs[32c..32c+31], 2c + 1 in the
//                     high ones
#pragma once

#include "quant/device.cuh"
#include "quant/scale_min_k4.cuh"

namespace apr::quant {

struct Q4_K {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 144;

#ifdef APR_HOST_CODE
  // out = (d * scale) * q - dmin * min
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    const float dmin = load_scale(block + 2);
    uint8_t scales[8], mins[8];
    unpack_scale_min_k4(block + 4, scales, mins);
    float sub_d[8], sub_min[8];
    APR_VECTOR_LOOP
    for (int sub = 0; sub < 8; ++sub) {
      sub_d[sub] = d * static_cast<float>(scales[sub]);
      sub_min[sub] = dmin * static_cast<float>(mins[sub]);
    }
    for (int pair = 0; pair < 4; ++pair) {
      const uint8_t* qs = block + 16 + 32 * pair;
      float* low = out + 64 * pair;
      float* high = low + 32;
      for (int l = 0; l < 32; ++l) {
        low[l] = sub_d[2 * pair] * static_cast<float>(qs[l] & 15) - sub_min[2 * pair];
      }
      for (int l = 0; l < 32; ++l) {
        high[l] = sub_d[2 * pair + 1] * static_cast<float>(qs[l] >> 4) - sub_min[2 * pair + 1];
      }
    }
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {4, 12, 128}, kRawAlign = 16;
  static constexpr int kGroupElems = 32, kQuantBias = 0;
  static constexpr bool kHasOffset = true;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int sub = quartet / 8;
    const uint32_t qs = load_u32<Block::template align<2>()>(
        block.template at<2>(32 * (sub / 2) + 4 * (quartet % 8)));
    return qs >> (4 * (sub % 2)) & 0x0f0f0f0fu;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    constexpr int kAlign = Block::template align<0>();
    const uint8_t* d = block.template at<0>(0);
    const ScaleMin packed =
        scale_min_k4<Block::template align<1>()>(block.template at<1>(0), group);
    return {mul_rn(load_d<kAlign>(d), static_cast<float>(packed.scale)),
            negated(mul_rn(load_d<kAlign>(d + 2), static_cast<float>(packed.min)))};
  }
};

}  // namespace apr::quant
