// Arguments of small_gemm.
#pragma once

#include "product_part.h"

namespace apr {

// products[token, first_col + row] = x_f16[token] w[row] * (the power of two of the weights)
struct SmallGemmParams {
  ProductPart parts[kMostProductParts];  // of one type and n_cols
  const uint16_t* x;                     // [n_tokens, n_cols] f16
  float* products;                       // [n_tokens, stride] f32
  int64_t stride, split_stride;          // elements from one row to the next, of splits
  int32_t n_parts, n_cols, n_tokens;
  int32_t n_tiles;         // of rows, of all parts
  int32_t n_splits;        // of the columns
  int32_t row_warps_log2;  // warps of a block with other rows, 32 each: 4 or 8; the others take
                           // other columns of the same
  int32_t n_slots;         // of the block's ring: 2 to 4
};

}  // namespace apr
