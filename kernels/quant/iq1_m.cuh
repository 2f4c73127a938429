// IQ1_M: ggml type 29; 256 weights in 16 sub-blocks of 16, 1.75 bits each.
//   byte   0  qs      32 bytes, one per group of 8: low 8 bits of the grid entry
//   byte  32  qh      16 bytes: of group 2c in the low nibble of qh[c], 2c + 1 in the high one:
//   bits
//                     0..2 are the high bits of the entry, bit 3 the sign of delta
//   byte  48  scales  u16[4]: bits 3k..3k+2 of scales[i] are the scale of sub-block 4i + k; bits
//                     12..15 are bits 4i..4i+3 of d, an f16
#pragma once

#include "quant/device.cuh"
#include "quant/iq_lookup.cuh"

namespace apr::quant {

struct IQ1_M {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 56;

#ifdef APR_HOST_CODE
  // out = (d * (2 * scale + 1)) * (g + delta), g in {-1, 0, 1}, delta = +-0.125
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const uint8_t* qh = block + 32;
    uint32_t d_bits = 0;
    for (int i = 0; i < 4; ++i) {
      d_bits |= static_cast<uint32_t>(load_u16(block + 48 + 2 * i) >> 12) << (4 * i);
    }
    const float d = f16_to_f32(static_cast<uint16_t>(d_bits));
    for (int sub = 0; sub < 16; ++sub) {
      const int scale = (load_u16(block + 48 + 2 * (sub / 4)) >> (3 * (sub & 3))) & 7;
      const float dl = d * static_cast<float>(2 * scale + 1);
      for (int group = 0; group < 2; ++group) {
        const int high = qh[sub] >> (4 * group);
        const int entry = block[2 * sub + group] | ((high & 7) << 8);
        const float delta = 0.125f - 0.25f * static_cast<float>((high >> 3) & 1);
        int8_t grid[8];
        std::memcpy(grid, &kIq1SGrid.entry[entry], sizeof grid);
        APR_VECTOR_LOOP
        for (int j = 0; j < 8; ++j) {
          out[16 * sub + 8 * group + j] = dl * (static_cast<float>(grid[j]) + delta);
        }
      }
    }
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {32, 16, 8}, kRawAlign = 8;
  static constexpr int kGroupElems = 16, kQuantBias = 16;
  static constexpr bool kHasOffset = false;
  APR_DEVICE static constexpr const auto& grid() {
    return kIq1SGrid;
  }
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int sub = quartet / 4, group = quartet / 2 % 2;
    const uint32_t high = *block.template at<1>(sub) >> (4 * group);
    const uint32_t entry = *block.template at<0>(2 * sub + group) | high_bits(high & 7) << 8;
    const uint32_t negative = sign_bits(high >> 3 & 1);
    const uint32_t levels = grid_quartet(block, grid(), entry, quartet % 2);
    // Eight times (g + delta), biased by 16: 8 (g + 1) + 8 +- 1, g + 1 in {0, 1, 2}.
    const uint32_t plus_one = (levels ^ 0x80808080u) - 0x7f7f7f7fu;
    return (plus_one << 3) + (negative != 0 ? 0x07070707u : 0x09090909u);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    constexpr int kAlign = Block::template align<2>();
    const uint8_t* scales = block.template at<2>(0);
    uint32_t packed_d = 0;
    for (int word = 0; word < 4; ++word) {
      packed_d |= (load_u16<kAlign>(scales + 2 * word) >> 12) << (4 * word);
    }
    const uint32_t scale = load_u16<kAlign>(scales + 2 * (group / 4)) >> (3 * (group % 4)) & 7;
    const float dl = mul_rn(f16_value(d_bits(packed_d)), static_cast<float>(2 * scale + 1));
    return {mul_rn(dl, 0.125f), 0.0f};
  }
};

}  // namespace apr::quant
