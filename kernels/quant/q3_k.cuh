// Q3_K: ggml type 11; 256 weights in 16 sub-blocks of 16, 3.4375 bits each.
//   byte    0  hmask   32 bytes, third bit: clear means 4 less
//   byte   32  qs      64 bytes, low 2 bits, four weights each
//   byte   96  scales  12 bytes: 16 scales of 6 bits, biased by 32. Bytes 0..7 hold the low four
//                      bits of scale j in the low nibble of byte j, of scale 8 + j in the high one;
//                      bytes 8..11 the high two bits of scale 4p + j in byte 8 + j, bits 2p, 2p + 1
//   byte  108  d       f16
// Weight 128h + 32g + l (h 0..1, g 0..3, l 0..31): low bits qs[32h + l] >> 2g, third bit
// hmask[l] >> (4h + g), sub-block 8h + 2g + l / 16.
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct Q3_K {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 110;

#ifdef APR_HOST_CODE
  // out = (d * (scale - 32)) * (q - 4)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const uint8_t* hmask = block;
    const float d = load_scale(block + 108);
    // Four scales at a time in one word: no bit crosses a byte after the masks.
    const uint32_t low0 = load_u32(block + 96);
    const uint32_t low1 = load_u32(block + 100);
    const uint32_t high = load_u32(block + 104);
    const uint32_t unpacked[4] = {
        (low0 & 0x0f0f0f0fu) | ((high << 4) & 0x30303030u),
        (low1 & 0x0f0f0f0fu) | ((high << 2) & 0x30303030u),
        ((low0 >> 4) & 0x0f0f0f0fu) | (high & 0x30303030u),
        ((low1 >> 4) & 0x0f0f0f0fu) | ((high >> 2) & 0x30303030u),
    };
    uint8_t scales[16];
    std::memcpy(scales, unpacked, sizeof scales);
    float sub_d[16];
    APR_VECTOR_LOOP
    for (int sub = 0; sub < 16; ++sub) {
      sub_d[sub] = d * static_cast<float>(scales[sub] - 32);
    }
    // One step is 16 values of l of each of the four groups g of one half: constant scales.
    for (int step = 0; step < 4; ++step) {
      const int half = step >> 1, l_high = step & 1;
      const uint8_t* qs = block + 32 + 32 * half + 16 * l_high;
      const uint8_t* hm = hmask + 16 * l_high;
      const float* dl = sub_d + 8 * half + l_high;
      float* y = out + 128 * half + 16 * l_high;
      APR_VECTOR_LOOP
      for (int l = 0; l < 16; ++l) {
        const int third = hm[l] >> (4 * half);
        y[l] = dl[0] * static_cast<float>(((qs[l] & 3) | ((third << 2) & 4)) - 4);
        y[32 + l] = dl[2] * static_cast<float>((((qs[l] >> 2) & 3) | ((third << 1) & 4)) - 4);
        y[64 + l] = dl[4] * static_cast<float>((((qs[l] >> 4) & 3) | (third & 4)) - 4);
        y[96 + l] = dl[6] * static_cast<float>(((qs[l] >> 6) | ((third >> 1) & 4)) - 4);
      }
    }
  }
#endif

  static constexpr int kSegments = 4, kSegmentBytes[] = {32, 64, 12, 2}, kRawAlign = 2;
  static constexpr int kGroupElems = 16, kQuantBias = 4;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int half = quartet / 32, group = quartet / 8 % 4, word = quartet % 8;
    const uint32_t hmask = load_u32<Block::template align<0>()>(block.template at<0>(4 * word));
    const uint32_t qs =
        load_u32<Block::template align<1>()>(block.template at<1>(32 * half + 4 * word));
    const uint32_t third = high_bits(hmask >> (4 * half + group) & 0x01010101u);
    return (qs >> (2 * group) & 0x03030303u) | third << 2;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    const uint8_t* scales = block.template at<2>(0);
    const uint32_t low = scales[group % 8] >> (group < 8 ? 0 : 4) & 15;
    const uint32_t high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
    const float d = load_d<2>(block.template at<3>(0));
    return {mul_rn(d, static_cast<float>(static_cast<int>(low | high << 4) - 32)), 0.0f};
  }
};

}  // namespace apr::quant
