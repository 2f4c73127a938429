// Q8_0: ggml type 8; 32 weights, 8.5 bits each.
//   byte  0  d   f16
//   byte  2  qs  int8[32]
#pragma once

#include "bytes.cuh"

namespace apr::quant {

struct Q8_0 {
  static constexpr int kBlockElems = 32;
  static constexpr int kBlockBytes = 34;

#ifdef APR_HOST_CODE
  // out[j] = d * q
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    const float d = load_scale(block);
    const uint8_t* qs = block + 2;
    for (int j = 0; j < 32; ++j) {
      out[j] = d * static_cast<float>(static_cast<int8_t>(qs[j]));
    }
  }
#endif
};

}  // namespace apr::quant
