// Arguments of matvec_rows.
#pragma once

#include "product_part.h"

namespace apr {

// products[token, first_col + row] = x_f16[token] w[row] * (the power of two of the weights)
struct MatvecRowsParams {
  ProductPart parts[kMostProductParts];  // of one type and n_cols
  const uint16_t* x;                     // [n_tokens, n_cols] f16
  float* products;                       // [n_splits, n_tokens, stride] f32
  int64_t stride, split_stride;          // elements from one row to the next, of splits
  int32_t n_parts, n_cols, n_tokens;
  int32_t n_tiles;      // of 16 rows, of all parts
  int32_t n_splits;     // of the columns
  int32_t n_col_warps;  // warps that share the columns of a row; a power of two
};

}  // namespace apr
