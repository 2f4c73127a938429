// IQ2_S: ggml type 22; 256 weights in 16 sub-blocks of 16, 2.5625 bits each.
//   byte   0  d       f16
//   byte   2  qs      32 bytes, one per group of 8: low 8 bits of the grid entry
//   byte  34  signs   32 bytes, one per group: bit j set makes weight j negative
//   byte  66  qh      8 bytes: bits 2l, 2l + 1 of qh[i] are the high bits of group 4i + l
//   byte  74  scales  8 bytes: scale of sub-block 2c in the low nibble of byte c, 2c + 1 in the
//                     high one
#pragma once

#include "quant/iq_lookup.cuh"
#include "quant/iq_signs.cuh"

namespace apr::quant {

struct IQ2_S {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 82;

#ifdef APR_HOST_CODE
  // out = ((d * (0.5 + scale)) * 0.25) * (sign * magnitude)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    uint64_t words[32];
    for (int quad = 0; quad < 8; ++quad) {
      const int qh = block[66 + quad];
      for (int l = 0; l < 4; ++l) {
        const int group = 4 * quad + l;
        const int entry = block[2 + group] | (((qh >> (2 * l)) & 3) << 8);
        words[group] = apply_signs(kIq2SGrid.entry[entry], block[34 + group]);
      }
    }
    float sub_d[16];
    APR_VECTOR_LOOP
    for (int sub = 0; sub < 16; ++sub) {
      const int scale = (block[74 + sub / 2] >> (4 * (sub & 1))) & 15;
      sub_d[sub] = d * (0.5f + static_cast<float>(scale)) * 0.25f;
    }
    scale_signed_bytes<16>(words, sub_d, out);
  }
#endif

  static constexpr int kSegments = 5, kSegmentBytes[] = {2, 32, 32, 8, 8}, kRawAlign = 2;
  static constexpr int kGroupElems = 16, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  APR_DEVICE static constexpr const auto& grid() {
    return kIq2SGrid;
  }
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int group = quartet / 2;
    const uint32_t high = *block.template at<3>(group / 4) >> (2 * (group % 4)) & 3;
    const uint32_t entry = *block.template at<1>(group) | high_bits(high) << 8;
    return signed_quants(grid_quartet(block, grid(), entry, quartet % 2),
                         *block.template at<2>(group) >> (4 * (quartet % 2)) & 15);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    const uint32_t scale = *block.template at<4>(group / 2) >> (4 * (group % 2)) & 15;
    const float d = load_d<2>(block.template at<0>(0));
    return {mul_rn(mul_rn(d, 0.5f + static_cast<float>(scale)), 0.25f), 0.0f};
  }
};

}  // namespace apr::quant
