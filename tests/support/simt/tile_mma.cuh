// Over kernels/tile_mma.cuh: loads and transposition of 8 x 8 matrices, as its comments there say.
#pragma once

#include "platform.cuh"

namespace apr {

inline uint32_t pair_of(uint16_t low, uint16_t high) {
  return low | static_cast<uint32_t>(high) << 16;
}

// d[m] = elements (row, 2 column), (row, 2 column + 1) of matrix m, or with rows and columns
// exchanged.
inline void load_four(uint32_t (&d)[4], uint32_t address, bool transposed) {
  const simt::Exchange<uint32_t> rows(address);
  const auto elem = [&](int matrix, int row, int col) {
    const uint32_t at = rows.of(8 * matrix + row);
    if (at % 16 != 0) {
      std::abort();  // the hardware faults
    }
    uint16_t value;
    std::memcpy(&value, simt::machine().dynamic_shared + at + 2 * col, sizeof value);
    return value;
  };
  const int first = simt::self().lane / 4, second = simt::self().lane % 4 * 2;
  for (int matrix = 0; matrix < 4; ++matrix) {
    d[matrix] = transposed ? pair_of(elem(matrix, second, first), elem(matrix, second + 1, first))
                           : pair_of(elem(matrix, first, second), elem(matrix, first, second + 1));
  }
  __syncwarp();  // no lane goes on and overwrites what another still reads
}

inline void load_matrices(uint32_t (&d)[4], uint32_t address) {
  load_four(d, address, false);
}

inline void load_matrices_transposed(uint32_t (&d)[4], uint32_t address) {
  load_four(d, address, true);
}

inline uint32_t transpose_matrix(uint32_t pair) {
  const simt::Exchange<uint32_t> lanes(pair);
  const int first = simt::self().lane / 4, second = simt::self().lane % 4 * 2;
  const auto elem = [&](int row, int col) {
    return static_cast<uint16_t>(lanes.of(4 * row + col / 2) >> 16 * (col % 2));
  };
  return pair_of(elem(second, first), elem(second + 1, first));
}

}  // namespace apr
