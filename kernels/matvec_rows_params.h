// Arguments of matvec_rows.
#pragma once

#include "params.h"

namespace apr {

constexpr int kMostMatvecRowsParts = 4;

// One of the matrices that a launch multiplies with its x.
struct MatvecRowsPart {
  const uint8_t* data;   // planes of [n_rows, n_cols]
  const float* largest;  // max |weight|
  int32_t n_rows;
  int32_t first_tile;  // of 16 rows, counted over all parts
  int32_t first_col;   // of its products
};

// products[token, first_col + row] = x_f16[token] w[row] * (the power of two of the weights)
struct MatvecRowsParams {
  MatvecRowsPart parts[kMostMatvecRowsParts];  // of one type and n_cols
  const uint16_t* x;                           // [n_tokens, n_cols] f16
  float* products;                             // [n_splits, n_tokens, stride] f32
  int64_t stride, split_stride;                // elements from one row to the next, of splits
  int32_t n_parts, n_cols, n_tokens;
  int32_t n_tiles;      // of 16 rows, of all parts
  int32_t n_splits;     // of the columns
  int32_t n_col_warps;  // warps that share the columns of a row; a power of two
};

}  // namespace apr
