// IQ1_S: ggml type 19; 256 weights in 8 sub-blocks of 32, 1.5625 bits each.
//   byte   0  d   f16
//   byte   2  qs  32 bytes, one per group of 8: low 8 bits of the grid entry
//   byte  34  qh  u16[8], one per sub-block: bits 3l..3l+2 are the high bits of group l, bits
//                 12..14 the scale, bit 15 the sign of delta
#pragma once

#include "quant/device.cuh"
#include "quant/iq_lookup.cuh"

namespace apr::quant {

struct IQ1_S {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 50;

#ifdef APR_HOST_CODE
  // out = (d * (2 * scale + 1)) * (g + delta), g in {-1, 0, 1}, delta = +-0.125
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    for (int sub = 0; sub < 8; ++sub) {
      const int qh = load_u16(block + 34 + 2 * sub);
      const float dl = d * static_cast<float>(2 * ((qh >> 12) & 7) + 1);
      const float delta = 0.125f - 0.25f * static_cast<float>(qh >> 15);
      for (int group = 0; group < 4; ++group) {
        const int entry = block[2 + 4 * sub + group] | (((qh >> (3 * group)) & 7) << 8);
        int8_t grid[8];
        std::memcpy(grid, &kIq1SGrid.entry[entry], sizeof grid);
        APR_VECTOR_LOOP
        for (int j = 0; j < 8; ++j) {
          out[32 * sub + 8 * group + j] = dl * (static_cast<float>(grid[j]) + delta);
        }
      }
    }
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {2, 32, 16}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 16;
  static constexpr bool kHasOffset = false;
  APR_DEVICE static constexpr const auto& grid() {
    return kIq1SGrid;
  }
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int sub = quartet / 8, group = quartet / 2 % 4;
    const uint32_t qh = load_u16<2>(block.template at<2>(2 * sub));
    const uint32_t entry = *block.template at<1>(4 * sub + group) | high_bits(qh >> (3 * group) & 7)
                                                                        << 8;
    const uint32_t negative = sign_bits(qh >> 15);
    const uint32_t levels = grid_quartet(block, grid(), entry, quartet % 2);
    // Eight times (g + delta), biased by 16: 8 (g + 1) + 8 +- 1, g + 1 in {0, 1, 2}.
    const uint32_t plus_one = (levels ^ 0x80808080u) - 0x7f7f7f7fu;
    return (plus_one << 3) + (negative != 0 ? 0x07070707u : 0x09090909u);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    const uint32_t qh = load_u16<2>(block.template at<2>(2 * group));
    const float d = load_d<2>(block.template at<0>(0));
    return {mul_rn(mul_rn(d, static_cast<float>(2 * (qh >> 12 & 7) + 1)), 0.125f), 0.0f};
  }
};

}  // namespace apr::quant
