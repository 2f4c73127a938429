// Over kernels/max_or_nan.cuh.
#pragma once

#include "platform.cuh"

namespace apr {

inline float max_or_nan(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? std::nanf("") : std::max(a, b);
}

}  // namespace apr
