// What gates a value.
#pragma once

#include "platform.cuh"

namespace apr {

// value * sigmoid(gate); silu(x) is times_sigmoid(x, x).
__device__ __forceinline__ float times_sigmoid(float value, float gate) {
  return __fdiv_rn(value, 1.0f + expf(-gate));
}

}  // namespace apr
