// Elements of the KV cache: f16 (packed pairs) or f32.
#pragma once

#include "mma.cuh"

namespace apr {

struct KvF16 {
  using Element = uint16_t;
  __device__ static uint16_t store(float value) {
    return static_cast<uint16_t>(pack_f16(value, 0.0f));
  }
  // Elements [4 * quartet, 4 * quartet + 4) of a row.
  __device__ static float4 load4(const uint16_t* row, int quartet) {
    const uint2 packed = reinterpret_cast<const uint2*>(row)[quartet];
    float4 v;
    unpack_f16(packed.x, v.x, v.y);
    unpack_f16(packed.y, v.z, v.w);
    return v;
  }
};

struct KvF32 {
  using Element = float;
  __device__ static float store(float value) { return value; }
  __device__ static float4 load4(const float* row, int quartet) {
    return reinterpret_cast<const float4*>(row)[quartet];
  }
};

}  // namespace apr
