// NVFP4: ggml type 40; 64 weights in 4 sub-blocks of 16, 4.5 bits each.
//   byte  0  d   4 bytes of unsigned E4M3 (bias 7), one per sub-block
//   byte  4  qs  32 bytes of E2M1: of sub-block s, weight j in the low nibble of qs[8s + j], 8 + j
//                in the high one
#pragma once

#include "quant/levels16.cuh"

namespace apr::quant {

struct NVFP4 {
  static constexpr int kBlockElems = 64;
  static constexpr int kBlockBytes = 36;

#ifdef APR_HOST_CODE
  // Half the value of an unsigned E4M3 byte; the top bit is ignored. 0x7f, NaN in the format, is 0
  // as in ggml; every other result is exact.
  static APR_INLINE float half_ue4m3_to_f32(uint8_t byte) {
    const uint32_t magnitude = byte & 0x7fu;
    // Normal: 2^(exponent - 8) * 1.mantissa. Subnormal: mantissa * 2^-10.
    const float normal = f32_from_bits((magnitude << 20) + (119u << 23));
    const float subnormal = static_cast<float>(static_cast<int>(magnitude)) * 0x1p-10f;
    return byte == 0x7f ? 0.0f : magnitude < 8 ? subnormal : normal;
  }

  // out = (d / 2) * doubled level[q]
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    float sub_d[4];
    for (int sub = 0; sub < 4; ++sub) {
      sub_d[sub] = half_ue4m3_to_f32(block[sub]);
    }
    // 32 bytes give [low nibbles 16, high nibbles 16] twice; a sub-block is eight of each.
    for (int pair = 0; pair < 2; ++pair) {
      int8_t level[32];
      lookup_nibbles(kE2m1DoubledLevels, block + 4 + 16 * pair, level);
      float* y = out + 32 * pair;
      APR_VECTOR_LOOP
      for (int j = 0; j < 8; ++j) {
        y[j] = sub_d[2 * pair] * static_cast<float>(level[j]);
        y[8 + j] = sub_d[2 * pair] * static_cast<float>(level[16 + j]);
        y[16 + j] = sub_d[2 * pair + 1] * static_cast<float>(level[8 + j]);
        y[24 + j] = sub_d[2 * pair + 1] * static_cast<float>(level[24 + j]);
      }
    }
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {4, 32}, kRawAlign = 4;
  static constexpr int kGroupElems = 16, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const int sub = quartet / 4;
    const uint32_t qs =
        load_u32<Block::template align<1>()>(block.template at<1>(8 * sub + 4 * (quartet % 2)));
    return biased_levels(kE2m1Biased, qs >> (quartet % 4 < 2 ? 0 : 4) & 0x0f0f0f0fu);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int group) {
    const uint32_t byte = d_bits(*block.template at<0>(group));
    const uint32_t magnitude = byte & 0x7fu;
    const float normal = f32_of_bits((magnitude << 20) + (119u << 23));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-10f;
    return {byte == 0x7f ? 0.0f : magnitude < 8 ? subnormal : normal, 0.0f};
  }
};

}  // namespace apr::quant
