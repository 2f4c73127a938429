// IQ3_S: ggml type 21; 256 weights in 8 sub-blocks of 32, 3.4375 bits each.
//   byte    0  d       f16
//   byte    2  qs      64 bytes, one per group of 4: low 8 bits of the grid entry
//   byte   66  qh      8 bytes: bit k of qh[i] is the ninth bit of group 8i + k
//   byte   74  signs   32 bytes, one per two groups: bit j set makes weight j negative
//   byte  106  scales  4 bytes: scale of sub-block 2c in the low nibble of byte c, 2c + 1 in the
//                      high one
#pragma once

#include "quant/iq_lookup.cuh"
#include "quant/iq_signs.cuh"

namespace apr::quant {

struct IQ3_S {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 110;

#ifdef APR_HOST_CODE
  // out = (d * (1 + 2 * scale)) * (sign * magnitude)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    uint64_t words[32];
    float sub_d[8];
    for (int sub = 0; sub < 8; ++sub) {
      const int scale = (block[106 + sub / 2] >> (4 * (sub & 1))) & 15;
      sub_d[sub] = d * static_cast<float>(1 + 2 * scale);
      const uint8_t* qs = block + 2 + 8 * sub;
      const int qh = block[66 + sub];
      for (int pair = 0; pair < 4; ++pair) {
        const uint64_t low = kIq3SGrid.entry[qs[2 * pair] | ((qh << (8 - 2 * pair)) & 256)];
        const uint64_t high = kIq3SGrid.entry[qs[2 * pair + 1] | ((qh << (7 - 2 * pair)) & 256)];
        words[4 * sub + pair] = apply_signs(low | (high << 32), block[74 + 4 * sub + pair]);
      }
    }
    scale_signed_bytes<32>(words, sub_d, out);
  }
#endif

  static constexpr int kSegments = 5, kSegmentBytes[] = {2, 64, 8, 32, 4}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  APR_DEVICE static constexpr const auto& grid() {
    return kIq3SGrid;
  }
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const uint32_t ninth = *block.template at<2>(quartet / 8) >> (quartet % 8) & 1;
    const uint32_t entry = *block.template at<1>(quartet) | high_bits(ninth) << 8;
    return signed_quants(grid_quartet(block, grid(), entry, 0),
                         *block.template at<3>(quartet / 2) >> (4 * (quartet % 2)) & 15);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    const uint32_t scale = *block.template at<4>(group / 2) >> (4 * (group % 2)) & 15;
    const float d = load_d<2>(block.template at<0>(0));
    return {mul_rn(d, static_cast<float>(1 + 2 * scale)), 0.0f};
  }
};

}  // namespace apr::quant
