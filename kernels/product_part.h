// The matrices of a launch that multiplies few tokens (small_gemm, matvec_rows).
#pragma once

#include "params.h"

namespace apr {

// One of the matrices that a launch multiplies with its x.
struct ProductPart {
  const uint8_t* data;   // planes of [n_rows, n_cols]
  const float* largest;  // max |weight|
  int32_t n_rows;
  int32_t first_tile;  // of the kernel's row tiles, counted over all parts
  int32_t first_col;   // of its products
};

// The part of a row tile.
template <class Params>
APR_DEVICE const ProductPart& part_of(const Params& p, int tile) {
  int part = p.n_parts - 1;
  while (tile < p.parts[part].first_tile) {
    --part;
  }
  return p.parts[part];
}

}  // namespace apr
