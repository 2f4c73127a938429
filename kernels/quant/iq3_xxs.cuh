// IQ3_XXS: ggml type 18; 256 weights in 8 sub-blocks of 32, 3.0625 bits each.
//   byte   0  d                 f16
//   byte   2  qs                64 bytes, one per group of 4: the grid entry
//   byte  66  scales_and_signs  u32[8], one per sub-block: bits 7l..7l+6 are the signs of the two
//                               groups 2l, 2l + 1, bits 28..31 the scale
#pragma once

#include "quant/iq_lookup.cuh"
#include "quant/iq_signs.cuh"

namespace apr::quant {

struct IQ3_XXS {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 98;

#ifdef APR_HOST_CODE
  // out = ((d * (0.5 + scale)) * 0.5) * (sign * magnitude)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    uint64_t words[32];
    float sub_d[8];
    for (int sub = 0; sub < 8; ++sub) {
      const uint8_t* qs = block + 2 + 8 * sub;
      const uint32_t signs_scale = load_u32(block + 66 + 4 * sub);
      sub_d[sub] = d * (0.5f + static_cast<float>(static_cast<int>(signs_scale >> 28))) * 0.5f;
      for (int pair = 0; pair < 4; ++pair) {
        const uint64_t low = kIq3XxsGrid.entry[qs[2 * pair]];
        const uint64_t high = kIq3XxsGrid.entry[qs[2 * pair + 1]];
        words[4 * sub + pair] =
            apply_signs(low | (high << 32), complete_signs(signs_scale >> (7 * pair)));
      }
    }
    scale_signed_bytes<32>(words, sub_d, out);
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {2, 64, 32}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  APR_DEVICE static constexpr const auto& grid() {
    return kIq3XxsGrid;
  }
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    constexpr int kAlign = Block::template align<2>();
    const uint32_t packed = load_u32<kAlign>(block.template at<2>(4 * (quartet / 8)));
    return signed_quants(grid_quartet(block, grid(), *block.template at<1>(quartet), 0),
                         half_of_signs(packed >> (7 * (quartet / 2 % 4)), quartet % 2));
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    constexpr int kAlign = Block::template align<2>();
    const uint32_t scale = load_u32<kAlign>(block.template at<2>(4 * group)) >> 28;
    const float d = load_d<2>(block.template at<0>(0));
    return {mul_rn(mul_rn(d, 0.5f + static_cast<float>(scale)), 0.5f), 0.0f};
  }
};

}  // namespace apr::quant
