// Loads of 16 bytes that leave the L1 cache alone.
#pragma once

#include "platform.cuh"

namespace apr {

// Zeros where not `valid`; stays where it stands among waits.
__device__ __forceinline__ uint4 load_or_zero(const uint16_t* from, bool valid) {
  uint4 v;
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0;\n"
      "  mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
      "  @p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(from), "r"(static_cast<int>(valid))
      : "memory");
  return v;
}

// What other blocks wrote.
__device__ __forceinline__ float4 load_shared_by_blocks(const float4* from) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

}  // namespace apr
