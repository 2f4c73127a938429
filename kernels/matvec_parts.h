// What follows from the matrices of a matvec launch; for its launcher.
#pragma once

#include <cstdint>

#include "params.h"
#include "quant/device.cuh"

namespace apr {

// Numbers the tiles of 16 rows of a launch and sets what else matvec_mma takes of its matrices:
// first_tile of the parts, those that it has not past all tiles; n_tiles; per_col. With SwiGLU both
// weights' tiles are counted once.
inline void number_tiles(MatvecParams& params, bool swiglu) {
  params.n_tiles = 0;
  for (int part = 0; part < kMostMatvecParts; ++part) {
    const bool is_there = part < (swiglu ? 1 : params.n_parts);
    params.parts[part].first_tile = is_there ? params.n_tiles : swiglu ? 0 : INT32_MAX;
    params.n_tiles +=
        is_there ? (params.parts[part].w.n_rows + quant::kUnitRows - 1) / quant::kUnitRows : 0;
  }
  params.per_col = 1.0F / static_cast<float>(params.parts[0].w.n_cols);
}

}  // namespace apr
