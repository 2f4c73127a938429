// Tensor-core products of one warp, as inline PTX (sm_80 and later).
#pragma once

#include "platform.cuh"

namespace apr {

// d += a b: a [16, 16] f16, b [16, 8] f16, d [16, 8] f32. Lane l, g = l / 4, t = l % 4 holds
//   a  (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)   pairs along k
//   b  (2t.., g), (2t + 8.., g)                                     pairs along k
//   d  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b: a [16, 32] u8, b [32, 8] s8, d [16, 8] s32. Lane l, g = l / 4, t = l % 4 holds
//   a  (g, 4t..), (g + 8, 4t..), (g, 4t + 16..), (g + 8, 4t + 16..)   four along k
//   b  (4t.., g), (4t + 16.., g)                                      four along k
//   d  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
__device__ __forceinline__ void mma_16x8x32(int32_t (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two f32 to packed f16, rounded to nearest even: `low` in bits 0..15.
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  uint32_t packed;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
      : "=r"(packed)
      : "f"(low), "f"(high));
#endif
  return packed;
}

// The two f16 of a pair as f32.
__device__ __forceinline__ void unpack_f16(uint32_t packed, float& low, float& high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(low), "=f"(high)
      : "r"(packed));
}

}  // namespace apr
