// Vectors of the instruction set that this translation unit is compiled for.
//
// Every source of this folder is compiled once for each instruction set, its code in the namespace
// APR_CPU_ISA. Nothing here may become a symbol that two of those objects share: the linker would
// keep one copy, and a machine without AVX-512 could meet an AVX-512 instruction. So: C arrays, no
// std:: code, everything static, always inlined or in this namespace (a test reads the objects).
#pragma once

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#define APR_ALWAYS_INLINE __attribute__((always_inline)) static inline

namespace apr::cpu::fast::APR_CPU_ISA {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;
constexpr F32 kF32{};
constexpr int kLanes = static_cast<int>(HWY_LANES(float));
static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);

APR_ALWAYS_INLINE Vec load(const float* from) {
  return hn::LoadU(kF32, from);
}
APR_ALWAYS_INLINE void store(Vec v, float* to) {
  hn::StoreU(v, kF32, to);
}
APR_ALWAYS_INLINE Vec broadcast(float value) {
  return hn::Set(kF32, value);
}
APR_ALWAYS_INLINE Vec zero() {
  return hn::Zero(kF32);
}

// The first n (< kLanes) elements, zeros behind; touches no memory past them.
APR_ALWAYS_INLINE Vec load_first(const float* from, int64_t n) {
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(n) * sizeof(float));
  return hn::Load(kF32, lanes);
}

APR_ALWAYS_INLINE void store_first(Vec v, float* to, int64_t n) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, kF32, lanes);
  std::memcpy(to, lanes, static_cast<size_t>(n) * sizeof(float));
}

using Quad = hn::FixedTag<float, 4>;
using Vec4 = hn::Vec<Quad>;
constexpr Quad kQuad{};

// Lane i: the sum of the lanes of v_i, by one tree for all four: upper half onto lower half until
// four lanes are left, then (0 + 1) + (2 + 3).
APR_ALWAYS_INLINE Vec4 sum_lanes4(Vec v0, Vec v1, Vec v2, Vec v3) {
#if HWY_MAX_BYTES == 64
  // Blocks of four lanes: [v0 v0 v1 v1] and [v2 v2 v3 v3], then [v0 v2 v1 v3].
  const Vec v01 = hn::Add(hn::ConcatLowerLower(kF32, v1, v0), hn::ConcatUpperUpper(kF32, v1, v0));
  const Vec v23 = hn::Add(hn::ConcatLowerLower(kF32, v3, v2), hn::ConcatUpperUpper(kF32, v3, v2));
  const Vec even = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v23), v01);
  const Vec odd = hn::OddEvenBlocks(v23, hn::SwapAdjacentBlocks(v01));
  const Vec blocks = hn::Add(even, odd);
  const Vec pairs = hn::Add(blocks, hn::Shuffle2301(blocks));
  const Vec sums = hn::Add(pairs, hn::Shuffle1032(pairs));
  HWY_ALIGN static constexpr int32_t kBlockOfSum[16] = {0, 8, 4, 12};
  const Vec packed = hn::TableLookupLanes(sums, hn::SetTableIndices(kF32, kBlockOfSum));
  return hn::LowerHalf(kQuad, hn::LowerHalf(packed));
#else
#if HWY_MAX_BYTES == 32
  const auto fold = [&](Vec v) __attribute__((always_inline)) {
    return hn::Add(hn::LowerHalf(kQuad, v), hn::UpperHalf(kQuad, v));
  };
  const Vec4 q0 = fold(v0), q1 = fold(v1), q2 = fold(v2), q3 = fold(v3);
#else
  const Vec4 q0 = v0, q1 = v1, q2 = v2, q3 = v3;
#endif
  const Vec4 low01 = hn::InterleaveLower(kQuad, q0, q1),
             high01 = hn::InterleaveUpper(kQuad, q0, q1);
  const Vec4 low23 = hn::InterleaveLower(kQuad, q2, q3),
             high23 = hn::InterleaveUpper(kQuad, q2, q3);
  // low01 = q0[0] q1[0] q0[1] q1[1]; high01 = q0[2] q1[2] q0[3] q1[3]
  const Vec4 lane0 = hn::ConcatLowerLower(kQuad, low23, low01);
  const Vec4 lane1 = hn::ConcatUpperUpper(kQuad, low23, low01);
  const Vec4 lane2 = hn::ConcatLowerLower(kQuad, high23, high01);
  const Vec4 lane3 = hn::ConcatUpperUpper(kQuad, high23, high01);
  return hn::Add(hn::Add(lane0, lane1), hn::Add(lane2, lane3));
#endif
}

// The sum of the lanes, by the tree of sum_lanes4.
APR_ALWAYS_INLINE float sum_lanes(Vec v) {
  return hn::GetLane(sum_lanes4(v, v, v, v));
}

// sum of a[i] * b[i]: lane l takes the elements i = l mod kLanes, ascending.
APR_ALWAYS_INLINE float dot(const float* a, const float* b, int64_t n_elems) {
  Vec sum = zero();
  int64_t elem = 0;
  for (; elem + kLanes <= n_elems; elem += kLanes) {
    sum = hn::MulAdd(load(a + elem), load(b + elem), sum);
  }
  if (elem < n_elems) {
    sum =
        hn::MulAdd(load_first(a + elem, n_elems - elem), load_first(b + elem, n_elems - elem), sum);
  }
  return sum_lanes(sum);
}

// to[i] = f(vectors of from...[i]) over n_elems elements.
template <class Fn, class... From>
APR_ALWAYS_INLINE void map(int64_t n_elems, float* to, Fn f, const From*... from) {
  int64_t elem = 0;
  for (; elem + kLanes <= n_elems; elem += kLanes) {
    store(f(load(from + elem)...), to + elem);
  }
  if (elem < n_elems) {
    store_first(f(load_first(from + elem, n_elems - elem)...), to + elem, n_elems - elem);
  }
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
