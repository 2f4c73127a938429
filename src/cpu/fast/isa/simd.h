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

// out[i] = the sum of the lanes of v[i], by one tree for all four: upper half onto lower half until
// four lanes are left, then (0 + 1) + (2 + 3).
APR_ALWAYS_INLINE void sum_lanes4(Vec v0, Vec v1, Vec v2, Vec v3, float* out) {
  using Quad = hn::FixedTag<float, 4>;
  constexpr Quad quad{};
#if HWY_MAX_BYTES == 64
  const auto v01 = hn::Add(hn::ConcatLowerLower(kF32, v1, v0), hn::ConcatUpperUpper(kF32, v1, v0));
  const auto v23 = hn::Add(hn::ConcatLowerLower(kF32, v3, v2), hn::ConcatUpperUpper(kF32, v3, v2));
  const hn::Half<F32> half{};
  const auto fold = [&](auto pair) __attribute__((always_inline)) {
    const auto low = hn::LowerHalf(half, pair), high = hn::UpperHalf(half, pair);
    return hn::Add(hn::ConcatLowerLower(half, high, low), hn::ConcatUpperUpper(half, high, low));
  };
  const auto q01 = fold(v01), q23 = fold(v23);
  const auto q0 = hn::LowerHalf(quad, q01), q1 = hn::UpperHalf(quad, q01);
  const auto q2 = hn::LowerHalf(quad, q23), q3 = hn::UpperHalf(quad, q23);
#elif HWY_MAX_BYTES == 32
  const auto fold = [&](Vec v) __attribute__((always_inline)) {
    return hn::Add(hn::LowerHalf(quad, v), hn::UpperHalf(quad, v));
  };
  const auto q0 = fold(v0), q1 = fold(v1), q2 = fold(v2), q3 = fold(v3);
#else
  const auto q0 = v0, q1 = v1, q2 = v2, q3 = v3;
#endif
  const auto low01 = hn::InterleaveLower(quad, q0, q1), high01 = hn::InterleaveUpper(quad, q0, q1);
  const auto low23 = hn::InterleaveLower(quad, q2, q3), high23 = hn::InterleaveUpper(quad, q2, q3);
  // low01 = q0[0] q1[0] q0[1] q1[1]; high01 = q0[2] q1[2] q0[3] q1[3]
  const auto lane0 = hn::ConcatLowerLower(quad, low23, low01);
  const auto lane1 = hn::ConcatUpperUpper(quad, low23, low01);
  const auto lane2 = hn::ConcatLowerLower(quad, high23, high01);
  const auto lane3 = hn::ConcatUpperUpper(quad, high23, high01);
  hn::StoreU(hn::Add(hn::Add(lane0, lane1), hn::Add(lane2, lane3)), quad, out);
}

// The sum of the lanes, by the tree of sum_lanes4.
APR_ALWAYS_INLINE float sum_lanes(Vec v) {
  float sums[4];
  sum_lanes4(v, v, v, v, sums);
  return sums[0];
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
