// Products of dequantised weight rows with activation rows: the core of matmul and of the experts.
#pragma once

#include "cpu/fast/isa/decode.h"

namespace apr::cpu::fast::APR_CPU_ISA {

// y[t][row] = w[row] . x[t] (+ bias[row]) for weight rows of one matrix.
struct ProductJob {
  DecodeRowsFn decode;
  int64_t block_elems, block_bytes;
  const uint8_t* w;  // [n_rows, row_bytes]
  int64_t row_bytes, n_cols;
  const float* x;  // rows of n_cols f32, x_stride apart
  int64_t x_stride;
  const int32_t* x_index;  // [n_tokens]: row of x that token t takes; null: row t
  int64_t n_tokens;
  const float* bias;  // [n_rows] f32 or null
  float* y;           // [n_tokens, y_stride] f32
  int64_t y_stride;
};

// Computes the columns [row_begin, row_end) of y. The columns are taken in blocks of 1024; within a
// block lane l of one accumulator sums the columns l mod kLanes, ascending, by fused multiply-adds
// (a multiply and an add where the instruction set lacks them); the lanes are added by the tree of
// sum_lanes4, the blocks in ascending order, the bias last. So an element's bits depend on its
// weight row and its activation row alone.
void multiply_rows(const ProductJob& job, int64_t row_begin, int64_t row_end);

// Weight rows for one task of a matrix of n_rows, so that every thread gets several.
int64_t rows_per_task(int64_t n_rows, int64_t n_tokens, int n_threads);

}  // namespace apr::cpu::fast::APR_CPU_ISA
