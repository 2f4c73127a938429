// TQ1_0: ggml type 34; 256 ternary weights, 1.6875 bits each. A byte holds five digits of base 3
// (qh: four) as ceil(value * 256 / 243): multiplying by 3^n modulo 256 brings digit n to the front,
// and its product with 3 then has the digit in the bits above 8.
//   byte   0  qs  48 bytes: weight 32n + l is digit n of qs[l] (l 0..31), weight 160 + 16n + l is
//                 digit n of qs[32 + l] (l 0..15)
//   byte  48  qh  4 bytes: weight 240 + 4n + l is digit n of qh[l] (l 0..3)
//   byte  52  d   f16
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct TQ1_0 {
  static constexpr int kBlockElems = 256;
  static constexpr int kBlockBytes = 54;

#ifdef APR_HOST_CODE
  // Digit n of a byte, for power = 3^n.
  static APR_INLINE uint8_t front_digit(uint8_t byte, uint8_t power) {
    const uint8_t shifted = static_cast<uint8_t>(byte * power);
    return static_cast<uint8_t>((static_cast<uint16_t>(shifted) * 3) >> 8);
  }

  // out = d * (digit - 1)
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block + 52);
    uint8_t digits[256];
    constexpr uint8_t kPowersOf3[5] = {1, 3, 9, 27, 81};
    for (int n = 0; n < 5; ++n) {
      for (int l = 0; l < 32; ++l) {
        digits[32 * n + l] = front_digit(block[l], kPowersOf3[n]);
      }
    }
    for (int n = 0; n < 5; ++n) {
      APR_VECTOR_LOOP
      for (int l = 0; l < 16; ++l) {
        digits[160 + 16 * n + l] = front_digit(block[32 + l], kPowersOf3[n]);
      }
    }
    for (int n = 0; n < 4; ++n) {
      for (int l = 0; l < 4; ++l) {
        digits[240 + 4 * n + l] = front_digit(block[48 + l], kPowersOf3[n]);
      }
    }
    for (int j = 0; j < 256; ++j) {
      out[j] = d * static_cast<float>(digits[j] - 1);
    }
  }
#endif

  static constexpr int kSegments = 3, kSegmentBytes[] = {48, 4, 2}, kRawAlign = 2;
  static constexpr int kGroupElems = 32, kQuantBias = 1;
  static constexpr bool kHasOffset = false;
  template <class Block>
  APR_DEVICE static uint32_t quants4(const Block& block, int quartet) {
    // The bytes that hold the four weights, and which digit of them.
    const int first = 4 * quartet;
    const bool in_qh = first >= 240;
    const int digit = first < 160 ? first / 32 : in_qh ? quartet - 60 : (first - 160) / 16;
    const uint8_t* bytes =
        in_qh ? block.template at<1>(0)
              : block.template at<0>((first < 160 ? first % 32 : 32 + (first - 160) % 16));
    const uint32_t power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    uint32_t quants = 0;
    for (int elem = 0; elem < 4; ++elem) {
      quants |= ((bytes[elem] * power & 255) * 3 >> 8) << (8 * elem);
    }
    return quants;
  }
  template <class Block>
  APR_DEVICE static Affine affine(const Block& block, int) {
    return {load_d<2>(block.template at<2>(0)), 0.0f};
  }
};

}  // namespace apr::quant
