// How the IQ types read their grids: from the constant table, or from the copy that a block has.
#pragma once

#include "quant/device.cuh"
#include "quant/iq_grids.cuh"

namespace apr::quant {

// Four bytes of an entry: of a grid of eight those of half `half`.
template <class Block, class Word, int kEntries>
APR_DEVICE uint32_t grid_quartet(const Block& block, const IqGrid<Word, kEntries>& grid,
                                 uint32_t entry, int half) {
  if constexpr (requires { block.grid; }) {
    return block.grid[sizeof(Word) == 8 ? 2 * entry + static_cast<uint32_t>(half) : entry];
  } else if constexpr (sizeof(Word) == 8) {
    return static_cast<uint32_t>(grid.entry[entry] >> (32 * half));
  } else {
    return grid.entry[entry];
  }
}

}  // namespace apr::quant
