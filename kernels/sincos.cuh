// Sine and cosine of an f32 angle of any size, to about one ulp, without local memory: reduced in
// f64, then polynomials on [-pi/4, pi/4] (Cephes' single-precision coefficients, S. Moshier).
#pragma once

#include "platform.cuh"

namespace apr {

APR_DEVICE void accurate_sincos(float angle, float& sine, float& cosine) {
  const double quarter_turns = static_cast<double>(angle) * 0.63661977236758134308;  // 2 / pi
#ifdef APR_DEVICE_CODE
  const double nearest = rint(quarter_turns);
#else
  const double nearest = __builtin_rint(quarter_turns);
#endif
  const int64_t quadrant = static_cast<int64_t>(nearest);
  const float x = static_cast<float>((quarter_turns - nearest) * 1.57079632679489661923);
  const float z = x * x;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const bool swap = (quadrant & 1) != 0;
  sine = swap ? c : s;
  cosine = swap ? s : c;
  if ((quadrant & 2) != 0) {
    sine = -sine;
  }
  if (((quadrant + 1) & 2) != 0) {
    cosine = -cosine;
  }
}

}  // namespace apr
