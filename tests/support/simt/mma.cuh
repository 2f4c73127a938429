// Over kernels/mma.cuh: the product of a warp, as its comment there lays it out.
#pragma once

#include "platform.cuh"

namespace apr {

inline float f16_of_pair(uint32_t pair, int idx) {
  const uint16_t bits = static_cast<uint16_t>(pair >> 16 * idx);
  _Float16 value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}

inline uint32_t pack_f16(float low, float high) {
  const _Float16 values[2] = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
  uint32_t pair;
  std::memcpy(&pair, values, sizeof pair);
  return pair;
}

inline void unpack_f16(uint32_t pair, float& low, float& high) {
  low = f16_of_pair(pair, 0);
  high = f16_of_pair(pair, 1);
}

inline void mma_16x8x32(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  const simt::Exchange<Fragments> lanes({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int g = simt::self().lane / 4, t = simt::self().lane % 4;
  for (int elem = 0; elem < 4; ++elem) {
    const int below = elem / 2;  // row g or g + 8
    const int col = 2 * t + elem % 2;
    for (int k = 0; k < 32; ++k) {
      const int owner = k % 16 / 4, shift = 8 * (k % 4);
      const uint32_t left = lanes.of(4 * g + owner).a[below + k / 16 * 2] >> shift & 255;
      const uint32_t right = lanes.of(4 * col + owner).b[k / 16] >> shift & 255;
      d[elem] += static_cast<int32_t>(left) * static_cast<int8_t>(right);
    }
  }
}

inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  const simt::Exchange<Fragments> lanes({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int g = simt::self().lane / 4, t = simt::self().lane % 4;
  for (int elem = 0; elem < 4; ++elem) {
    const int below = elem / 2;  // row g or g + 8
    const int col = 2 * t + elem % 2;
    float sum = 0.0F;
    for (int k = 0; k < 16; ++k) {
      const int owner = k % 8 / 2;
      sum += f16_of_pair(lanes.of(4 * g + owner).a[below + k / 8 * 2], k % 2) *
             f16_of_pair(lanes.of(4 * col + owner).b[k / 8], k % 2);
    }
    d[elem] += sum;
  }
}

}  // namespace apr
