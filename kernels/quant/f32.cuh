// F32: ggml type 0.
//   byte 0  value, IEEE binary32
#pragma once

#include "bytes.cuh"
#include "quant/device.cuh"

namespace apr::quant {

struct F32 {
  static constexpr int kBlockElems = 1;
  static constexpr int kBlockBytes = 4;

#ifdef APR_HOST_CODE
  // out[0] = the value. Copied as bits: a float register may quieten a signalling NaN.
  static APR_INLINE void decode_reference(const uint8_t* __restrict__ block,
                                          float* __restrict__ out) {
    std::memcpy(out, block, sizeof *out);
  }
#endif

  static constexpr int kRawAlign = 4;
  // values: 8 of them, aligned to their size.
  APR_DEVICE static void decode8(const uint8_t* values, float (&out)[8]) {
    for (int elem = 0; elem < 8; ++elem) {
      out[elem] = f32_of_bits(load_u32<4>(values + 4 * elem));
    }
  }
};

}  // namespace apr::quant
