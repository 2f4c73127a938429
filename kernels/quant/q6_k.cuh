// Q6_K: ggml type 14; 256 weights in 16 sub-blocks of 16, 6.5625 bits each.
//   byte    0  ql      128 bytes, low 4 bits
//   byte  128  qh      64 bytes, high 2 bits
//   byte  192  scales  int8[16]
//   byte  208  d       f16
// Weight 128h + 32g + l (h 0..1, g 0..3, l 0..31): low bits in ql[64h + 32(g & 1) + l], the low
// nibble for g < 2, else the high one; high bits in qh[32h + l] >> 2g; scale 8h + 2g + l / 16.
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct Q6_K {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 210;

#ifdef APR_HOST_CODE
  // out = (d * scale) * (q - 32)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const uint8_t* scales = block + 192;
    const float d = load_scale(block + 208);
    float sub_d[16];
    APR_VECTOR_LOOP
    for (int sub = 0; sub < 16; ++sub) {
      sub_d[sub] = d * static_cast<float>(static_cast<int8_t>(scales[sub]));
    }
    // One step is 16 values of l of each of the four groups g of one half: constant scales.
    for (int step = 0; step < 4; ++step) {
      const int half = step >> 1, l_high = step & 1;
      const uint8_t* ql = block + 64 * half + 16 * l_high;
      const uint8_t* qh = block + 128 + 32 * half + 16 * l_high;
      const float* dl = sub_d + 8 * half + l_high;
      float* y = out + 128 * half + 16 * l_high;
      APR_VECTOR_LOOP
      for (int l = 0; l < 16; ++l) {
        const int high = qh[l];
        y[l] = dl[0] * static_cast<float>(((ql[l] & 15) | ((high & 3) << 4)) - 32);
        y[32 + l] = dl[2] * static_cast<float>(((ql[32 + l] & 15) | ((high & 12) << 2)) - 32);
        y[64 + l] = dl[4] * static_cast<float>(((ql[l] >> 4) | (high & 48)) - 32);
        y[96 + l] = dl[6] * static_cast<float>(((ql[32 + l] >> 4) | ((high >> 6) << 4)) - 32);
      }
    }
  }
#endif

  static constexpr int kSegments = 4, kSegmentBytes[] = {128, 64, 16, 2}, kRawAlign = 2;
  static constexpr int kGroupElems = 16, kQuantBias = 32;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int half = quartet / 32, group = quartet / 8 % 4, word = quartet % 8;
    const uint32_t ql = load_u32<Block::template align<0>()>(
        block.template at<0>(64 * half + 32 * (group % 2) + 4 * word));
    const uint32_t qh =
        load_u32<Block::template align<1>()>(block.template at<1>(32 * half + 4 * word));
    const uint32_t high = high_bits(qh >> (2 * group) & 0x03030303u);
    return (ql >> (group < 2 ? 0 : 4) & 0x0f0f0f0fu) | high << 4;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    const int scale = signed_byte(*block.template at<2>(group));
    const float d = load_d<2>(block.template at<3>(0));
    return {mul_rn(d, static_cast<float>(scale)), 0.0f};
  }
};

}  // namespace apr::quant
