// IQ2_XXS: ggml type 16; 256 weights in 8 sub-blocks of 32, 2.0625 bits each.
//   byte  0  d   f16
//   byte  2  qs  8 x 8 bytes, one per sub-block: 4 bytes, the grid entry of each group of 8; u32:
//                bits 7l..7l+6 are the signs of group l, bits 28..31 the scale
#pragma once

#include "quant/iq_lookup.cuh"
#include "quant/iq_signs.cuh"

namespace apr::quant {

struct IQ2_XXS {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 66;

#ifdef APR_HOST_CODE
  // out = ((d * (0.5 + scale)) * 0.25) * (sign * magnitude)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    uint64_t words[32];
    float sub_d[8];
    for (int sub = 0; sub < 8; ++sub) {
      const uint8_t* qs = block + 2 + 8 * sub;
      const uint32_t signs_scale = load_u32(qs + 4);
      sub_d[sub] = d * (0.5f + static_cast<float>(static_cast<int>(signs_scale >> 28))) * 0.25f;
      for (int group = 0; group < 4; ++group) {
        words[4 * sub + group] =
            apply_signs(kIq2XxsGrid.entry[qs[group]], complete_signs(signs_scale >> (7 * group)));
      }
    }
    scale_signed_bytes<32>(words, sub_d, out);
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {2, 64}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  APR_DEVICE static constexpr const auto& grid() {
    return kIq2XxsGrid;
  }
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    constexpr int kAlign = Block::template align<1>();
    const uint8_t* qs = block.template at<1>(8 * (quartet / 8));
    const int group = quartet % 8 / 2;
    const uint32_t entry = byte_perm(load_u32<kAlign>(qs), 0, 0x4440u | group);
    const uint32_t signs = load_u32<kAlign>(qs + 4) >> (7 * group);
    return signed_quants(grid_quartet(block, grid(), entry, quartet % 2),
                         half_of_signs(signs, quartet % 2));
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    constexpr int kAlign = Block::template align<1>();
    const uint32_t scale = load_u32<kAlign>(block.template at<1>(8 * group + 4)) >> 28;
    const float d = load_d<2>(block.template at<0>(0));
    return {mul_rn(mul_rn(d, 0.5f + static_cast<float>(scale)), 0.25f), 0.0f};
  }
};

}  // namespace apr::quant
