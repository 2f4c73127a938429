// F16: ggml type 1.
//   byte 0  value, IEEE binary16
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct F16 {
  static constexpr int kBlockElems = 1;
  static constexpr int kBlockBytes = 2;

#ifdef APR_HOST_CODE
  // out[0] = the value.
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    out[0] = f16_to_f32(load_u16(block));
  }
#endif

  static constexpr int kRawAlign = 2;
  // values: 8 of them, aligned to their size.
  APR_DEVICE static void decode8(const uint8_t* values, float (&out)[8]) {
    for (int elem = 0; elem < 8; ++elem) {
      out[elem] = f16_value(load_u16<2>(values + 2 * elem));
    }
  }
};

}  // namespace apr::quant
