// IQ2_XS: ggml type 17; 256 weights in 16 sub-blocks of 16, 2.3125 bits each.
//   byte   0  d       f16
//   byte   2  qs      u16[32], one per group of 8: bits 0..8 the grid entry, 9..15 the signs
//   byte  66  scales  8 bytes: scale of sub-block 2c in the low nibble of byte c, 2c + 1 in the
//                     high one
#pragma once

#include "quant/iq_lookup.cuh"
#include "quant/iq_signs.cuh"

namespace apr::quant {

struct IQ2_XS {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 74;

#ifdef APR_HOST_CODE
  // out = ((d * (0.5 + scale)) * 0.25) * (sign * magnitude)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    uint64_t words[32];
    for (int quad = 0; quad < 8; ++quad) {
      for (int group = 4 * quad; group < 4 * quad + 4; ++group) {
        const uint32_t q = load_u16(block + 2 + 2 * group);
        words[group] = apply_signs(kIq2XsGrid.entry[q & 511], complete_signs(q >> 9));
      }
    }
    float sub_d[16];
    APR_VECTOR_LOOP
    for (int sub = 0; sub < 16; ++sub) {
      const int scale = (block[66 + sub / 2] >> (4 * (sub & 1))) & 15;
      sub_d[sub] = d * (0.5f + static_cast<float>(scale)) * 0.25f;
    }
    scale_signed_bytes<16>(words, sub_d, out);
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {2, 64, 8}, kRawAlign = 2;
  static constexpr int kGroupElems = 16, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  APR_DEVICE static constexpr const auto& grid() {
    return kIq2XsGrid;
  }
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const uint32_t q = load_u16<2>(block.template at<1>(2 * (quartet / 2)));
    return signed_quants(grid_quartet(block, grid(), q & 511, quartet % 2),
                         half_of_signs(q >> 9, quartet % 2));
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    const uint32_t scale = *block.template at<2>(group / 2) >> (4 * (group % 2)) & 15;
    const float d = load_d<2>(block.template at<0>(0));
    return {mul_rn(mul_rn(d, 0.5f + static_cast<float>(scale)), 0.25f), 0.0f};
  }
};

}  // namespace apr::quant
