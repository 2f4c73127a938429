// Q5_K: ggml type 13; 256 weights in 8 sub-blocks of 32, 5.5 bits each.
//   byte   0  d       f16, scale of the scales
//   byte   2  dmin    f16, scale of the minima
//   byte   4  scales  12 bytes: 8 scales and 8 minima of 6 bits, see scale_min_k4.cuh
//   byte  16  qh      32 bytes: bit s of qh[l] is the fifth bit of weight l of sub-block s
//   byte  48  qs      128 bytes: sub-block 2c in the low nibbles of qs[32c..32c+31], 2c + 1 in the
//                     high ones
#pragma once

#include "quant/device.cuh"
#include "quant/scale_min_k4.cuh"

namespace apr::quant {

struct Q5_K {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 176;

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
    const uint8_t* qh = block + 16;
    for (int pair = 0; pair < 4; ++pair) {
      const int sub = 2 * pair;
      const uint8_t* qs = block + 48 + 32 * pair;
      float* low = out + 64 * pair;
      float* high = low + 32;
      for (int l = 0; l < 32; ++l) {
        const int q = (qs[l] & 15) | (((qh[l] >> sub) & 1) << 4);
        low[l] = sub_d[sub] * static_cast<float>(q) - sub_min[sub];
      }
      for (int l = 0; l < 32; ++l) {
        const int q = (qs[l] >> 4) | (((qh[l] >> (sub + 1)) & 1) << 4);
        high[l] = sub_d[sub + 1] * static_cast<float>(q) - sub_min[sub + 1];
      }
    }
  }
#endif

  static constexpr int kSegments = 4, kSegmentBytes[] = {4, 12, 32, 128}, kRawAlign = 16;
  static constexpr int kGroupElems = 32, kQuantBias = 0;
  static constexpr bool kHasOffset = true;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int sub = quartet / 8;
    const uint32_t qs = load_u32<Block::template align<3>()>(
        block.template at<3>(32 * (sub / 2) + 4 * (quartet % 8)));
    const uint32_t qh =
        load_u32<Block::template align<2>()>(block.template at<2>(4 * (quartet % 8)));
    return (qs >> (4 * (sub % 2)) & 0x0f0f0f0fu) | high_bits(qh >> sub & 0x01010101u) << 4;
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
