// Tiles of f16 rows in shared memory for tensor-core products: a swizzle without bank conflicts.
#pragma once

#include "platform.cuh"

namespace apr {

// Where 16-byte chunk `chunk` of row `row` lies in a tile of rows of kRowBytes (a multiple of 128):
// the chunks of each 128 bytes change places from row to row, so that the same chunk of 8 rows
// meets all banks once.
template <int kRowBytes>
__device__ __forceinline__ uint32_t tile_offset(int row, int chunk) {
  static_assert(kRowBytes % 128 == 0, "rows of whole 128 bytes");
  return static_cast<uint32_t>(row * kRowBytes + chunk / 8 * 128 + ((chunk ^ row) % 8) * 16);
}

// The address of this lane's matrix row in the 16 elements at `column` * 16, where that of column 0
// is `first` in a tile that is aligned to 128 bytes.
__device__ __forceinline__ uint32_t column_address(uint32_t first, int column) {
  return (first ^ static_cast<uint32_t>(column % 4 * 32)) + static_cast<uint32_t>(column / 4 * 128);
}

}  // namespace apr
