// Over kernels/past_l1.cuh.
#pragma once

#include "platform.cuh"

namespace apr {

inline uint4 load_or_zero(const uint16_t* from, bool valid) {
  return valid ? *reinterpret_cast<const uint4*>(from) : uint4{};
}

inline float4 load_shared_by_blocks(const float4* from) {
  return *from;
}

}  // namespace apr
