// A small matrix product whose lanes run over the columns of the result.
#pragma once

#include "cpu/fast/isa/simd.h"

namespace apr::cpu::fast::APR_CPU_ISA {

// c[row][col] (+)= sum over i, ascending, of a[row][i] * b[i][col]; sums start at c.
// a: [n_rows, a_stride]; b: [n_inner, b_stride]; c: [n_rows, c_stride]; kVecs vectors of columns.
template <int kRows, int kVecs>
APR_ALWAYS_INLINE void outer_tile(const float* a, int64_t a_stride, const float* b,
                                  int64_t b_stride, int64_t n_inner, float* c, int64_t c_stride) {
  Vec acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = load(c + r * c_stride + v * kLanes);
    }
  }
  for (int64_t i = 0; i < n_inner; ++i) {
    Vec b_vec[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      b_vec[v] = load(b + i * b_stride + v * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec a_vec = broadcast(a[r * a_stride + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        acc[r][v] = hn::MulAdd(a_vec, b_vec[v], acc[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      store(acc[r][v], c + r * c_stride + v * kLanes);
    }
  }
}

constexpr int kOuterVecs = kLanes == 16 ? 4 : 2;
constexpr int kOuterRows = HWY_ARCH_X86 && kLanes == 4 ? 4 : 6;

// outer_tile over n_cols (a multiple of kLanes) columns for kRows rows.
template <int kRows>
APR_ALWAYS_INLINE void outer_rows(const float* a, int64_t a_stride, const float* b,
                                  int64_t b_stride, int64_t n_inner, float* c, int64_t c_stride,
                                  int64_t n_cols) {
  int64_t col = 0;
  for (; col + kOuterVecs * kLanes <= n_cols; col += kOuterVecs * kLanes) {
    outer_tile<kRows, kOuterVecs>(a, a_stride, b + col, b_stride, n_inner, c + col, c_stride);
  }
  for (; col < n_cols; col += kLanes) {
    outer_tile<kRows, 1>(a, a_stride, b + col, b_stride, n_inner, c + col, c_stride);
  }
}

// Calls f.template operator()<n>() for the n in [1, kMost] that equals n_rows.
template <int kMost, class Fn>
APR_ALWAYS_INLINE void with_rows(int64_t n_rows, Fn f) {
  if (n_rows == kMost) {
    f.template operator()<kMost>();
  } else if constexpr (kMost > 1) {
    with_rows<kMost - 1>(n_rows, f);
  }
}

// Rows of the next tile when n_rows are left: near-equal tiles of at most kOuterRows.
APR_ALWAYS_INLINE int64_t next_tile_rows(int64_t n_rows) {
  const int64_t n_tiles = (n_rows + kOuterRows - 1) / kOuterRows;
  return (n_rows + n_tiles - 1) / n_tiles;
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
