// The eight 6-bit scales and eight 6-bit minima that Q4_K and Q5_K pack into 12 bytes:
//   byte  0  low 6 bits: scale 0..3   top 2 bits: high bits of scale 4..7
//   byte  4  low 6 bits: min 0..3     top 2 bits: high bits of min 4..7
//   byte  8  low nibble: scale 4..7   high nibble: min 4..7   (their low 4 bits)
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

#ifdef APR_HOST_CODE
// scales, mins: [8], values 0..63.
APR_INLINE void unpack_scale_min_k4(const uint8_t* packed, uint8_t* scales, uint8_t* mins) {
  // Four bytes at a time in one word: no bit crosses a byte after the masks.
  const uint32_t word0 = load_u32(packed);
  const uint32_t word1 = load_u32(packed + 4);
  const uint32_t word2 = load_u32(packed + 8);
  const uint32_t unpacked[4] = {
      word0 & 0x3f3f3f3fu,
      (word2 & 0x0f0f0f0fu) | ((word0 >> 2) & 0x30303030u),
      word1 & 0x3f3f3f3fu,
      ((word2 >> 4) & 0x0f0f0f0fu) | ((word1 >> 2) & 0x30303030u),
  };
  std::memcpy(scales, unpacked, 8);
  std::memcpy(mins, unpacked + 2, 8);
}
#endif

struct ScaleMin {
  uint32_t scale, min;
};

// Scale and minimum of sub-block `sub`; packed: 12 bytes aligned to kAlign.
template <int kAlign>
APR_DEVICE ScaleMin scale_min_k4(const uint8_t* packed, int sub) {
  const uint32_t word0 = load_u32<kAlign>(packed);
  const uint32_t word1 = load_u32<kAlign>(packed + 4);
  const uint32_t word2 = load_u32<kAlign>(packed + 8);
  const int shift = 8 * (sub % 4);
  if (sub < 4) {
    return {word0 >> shift & 63, word1 >> shift & 63};
  }
  return {(word2 >> shift & 15) | high_bits(word0 >> shift >> 2 & 48),
          (word2 >> shift >> 4 & 15) | high_bits(word1 >> shift >> 2 & 48)};
}

}  // namespace apr::quant
