// The shared memory of matvec_rows, laid out alike by host and device: a ring of units for each
// warp and the type's grid, as matvec_mma has them; the warps' sums; the x of the block's columns;
// the sums of its groups.
#pragma once

#include "matvec_layout.cuh"

namespace apr {

constexpr int kMostMatvecRowsTokens = 16;  // of more, products would not fit in registers
constexpr int kTokenTile = 8;              // tokens of one tensor-core product

// The least kernel's tiles of tokens that hold so many.
APR_DEVICE constexpr int matvec_rows_tiles(int64_t n_tokens) {
  return n_tokens <= kTokenTile ? 1 : 2;
}

// From one token's x to the next: 32 bytes more than a multiple of 128, so that loads of 8 bytes by
// four lanes from each of four tokens meet all banks once.
APR_DEVICE constexpr int matvec_rows_x_bytes(int n_units) {
  return n_units * quant::kUnitCols * 2 + 32;
}

// Of the sums that one warp hands over.
APR_DEVICE constexpr int matvec_rows_sums_bytes(int n_token_tiles) {
  return quant::kUnitRows * kTokenTile * n_token_tiles * 4;
}

// Of all but rings and grid; n_units: of a split; group_elems: 0 where a type has no offsets.
APR_DEVICE constexpr int64_t matvec_rows_own_bytes(int n_units, int64_t n_tokens, int group_elems) {
  const int n_token_tiles = matvec_rows_tiles(n_tokens);
  const int n_groups = group_elems == 0 ? 0 : n_units * (quant::kUnitCols / group_elems);
  return kMatvecWarps * matvec_rows_sums_bytes(n_token_tiles) +
         n_tokens * matvec_rows_x_bytes(n_units) +
         int64_t{n_groups} * kTokenTile * n_token_tiles * 4;
}

}  // namespace apr
