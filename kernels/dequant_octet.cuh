// What one thread of dequant does. It knows nothing of threads, so that it also runs on the host.
#pragma once

#include "params.h"
#include "weight.cuh"

namespace apr {

// Decodes columns [8 octet, + 8) of row p.first_row + launch_row, bit for bit as the scalar
// reference, and stores those before p.n_cols in row `launch_row` of p.out: as f32, or with kHalf
// as f16 of value * p.scale.
template <class T, bool kPlanes, bool kHalf>
APR_DEVICE void dequant_octet(const DequantParams& p, int octet, int launch_row) {
  const int n_stored = quant::stored_columns(p.n_cols);
  if (8 * octet >= n_stored) {
    return;
  }
  float values[8];
  weight_octet<T, kPlanes>(p.w, static_cast<int64_t>(p.first_row) + launch_row, octet, values);
  const int64_t first = static_cast<int64_t>(launch_row) * p.n_cols + 8 * octet;
#ifdef APR_DEVICE_CODE
#pragma unroll
#endif
  for (int elem = 0; elem < 8; ++elem) {
    if (8 * octet + elem < n_stored) {
      if constexpr (kHalf) {
        static_cast<uint16_t*>(p.out)[first + elem] = f16_bits(mul_rn(values[elem], p.scale));
      } else {
        static_cast<float*>(p.out)[first + elem] = values[elem];
      }
    }
  }
}

}  // namespace apr
