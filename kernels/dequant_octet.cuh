// What one thread of dequant does. It knows nothing of threads, so that it also runs on the host.
#pragma once

#include "e4m3.cuh"
#include "params.h"
#include "weight.cuh"

namespace apr {

// Decodes columns [8 octet, + 8) of row p.first_row + launch_row, bit for bit as the scalar
// reference, and stores those before p.n_cols in row `launch_row` of p.out: as f32, or as f16 or
// E4M3 of value * p.scale.
template <class T, bool kPlanes, DequantForm kForm>
APR_DEVICE void dequant_octet(const DequantParams& p, int octet, int launch_row) {
  const int n_stored = quant::stored_columns(p.n_cols);
  if (8 * octet >= n_stored) {
    return;
  }
  float values[8];
  weight_octet<T, kPlanes>(p.w, static_cast<int64_t>(p.first_row) + launch_row, octet, values);
  const int64_t first = static_cast<int64_t>(launch_row) * p.n_cols + 8 * octet;
#ifdef APR_DEVICE_CODE
  if (p.n_cols % 8 == 0 && 8 * octet + 8 <= n_stored) {  // all rows are aligned, as p.out is
    if constexpr (kForm == DequantForm::kE4m3) {
      uint32_t fours[2];
#pragma unroll
      for (int four = 0; four < 2; ++four) {
        const float* of = values + 4 * four;
        fours[four] =
            pack_e4m3(mul_rn(of[0], p.scale), mul_rn(of[1], p.scale)) |
            static_cast<uint32_t>(pack_e4m3(mul_rn(of[2], p.scale), mul_rn(of[3], p.scale))) << 16;
      }
      *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.out) + first) =
          make_uint2(fours[0], fours[1]);
    } else if constexpr (kForm == DequantForm::kF16) {
      uint32_t pairs[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        pairs[pair] = f16_bits(mul_rn(values[2 * pair], p.scale)) |
                      static_cast<uint32_t>(f16_bits(mul_rn(values[2 * pair + 1], p.scale))) << 16;
      }
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.out) + first) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
      float4* out = reinterpret_cast<float4*>(static_cast<float*>(p.out) + first);
      out[0] = make_float4(values[0], values[1], values[2], values[3]);
      out[1] = make_float4(values[4], values[5], values[6], values[7]);
    }
    return;
  }
#pragma unroll
#endif
  for (int elem = 0; elem < 8; ++elem) {
    if (8 * octet + elem < n_stored) {
      if constexpr (kForm == DequantForm::kE4m3) {
        static_cast<uint8_t*>(p.out)[first + elem] = e4m3_bits(mul_rn(values[elem], p.scale));
      } else if constexpr (kForm == DequantForm::kF16) {
        static_cast<uint16_t*>(p.out)[first + elem] = f16_bits(mul_rn(values[elem], p.scale));
      } else {
        static_cast<float*>(p.out)[first + elem] = values[elem];
      }
    }
  }
}

}  // namespace apr
