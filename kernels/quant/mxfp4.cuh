// MXFP4: ggml type 39 (OCP Microscaling 1.0); 32 weights, 4.25 bits each.
//   byte  0  e   E8M0 exponent, bias 127
//   byte  1  qs  16 bytes of E2M1: weight j in the low nibble of qs[j], 16 + j in the high one
#pragma once

#include "quant/levels16.cuh"

namespace apr::quant {

struct MXFP4 {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 17;

#ifdef APR_HOST_CODE
  // out[j] = 2^(e - 128) * doubled level[q]. e = 255 (NaN in OCP) is 2^127, as in ggml.
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const uint32_t e = block[0];
    // 2^(e - 128) is subnormal for e = 0 and 1.
    const float d = f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    scale_nibble_levels(kE2m1DoubledLevels, block + 1, d, out);
  }
#endif

  static constexpr int kSegments = 2, kSegmentBytes[] = {1, 16}, kRawAlign = 1;
  static constexpr int kGroupElems = 32, kQuantBias = 128;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    const uint32_t qs =
        load_u32<Block::template align<1>()>(block.template at<1>(4 * (quartet % 4)));
    return biased_levels(kE2m1Biased, qs >> (quartet < 4 ? 0 : 4) & 0x0f0f0f0fu);
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    const uint32_t e = d_bits(*block.template at<0>(0));
    return {f32_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0.0f};
  }
};

}  // namespace apr::quant
