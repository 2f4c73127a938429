// Launches of the matrix-vector kernels.
#pragma once

#include <utility>

#include "apr/quant.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "params.h"

namespace apr::cuda {

constexpr int64_t kStaticSharedBytes = 5 * 1024;  // of matvec_mma, and what the driver takes

// How the 16 warps of a matvec_mma block share the work.
struct MatvecSplit {
  int n_col_warps;  // that share a tile, 16 rows of each weight; a power of two
  uint32_t n_blocks;
  // Of units (16 rows by 256 columns) that a warp takes, the ends of tiles included.
  int64_t n_rounds;
};

// The split that takes the fewest rounds: n_tiles tiles of 16 rows of n_weights matrices, n_units
// units a row, on n_sm multiprocessors.
MatvecSplit matvec_split(int64_t n_tiles, int64_t n_units, int n_sm, int n_weights = 1);

// A product of a pair: tiles of 16 rows, and bytes of a unit.
struct MatvecWork {
  int64_t n_tiles, unit_bytes;
};

// The splits of two products with n_units units a row that share n_sm multiprocessors, at least
// two, so that the later one ends as early as may be.
std::pair<MatvecSplit, MatvecSplit> matvec_pair_split(const MatvecWork& first,
                                                      const MatvecWork& second, int64_t n_units,
                                                      int n_sm);

// What the tensor-core matvec of a type keeps in shared memory beside the staged x.
struct MatvecShared {
  int64_t ring_bytes;  // of all warps, the grid included; 0: a plain type, which has no such kernel
  int group_elems;
  int64_t unit_bytes;
  bool has_offset;  // its weights: sums of the groups of x are kept, too
};
MatvecShared matvec_shared(const QuantType& type);

// Whether matvec_mma can multiply matrices of `type` with n_cols columns: a block type, whole
// scales of x, and room in shared memory.
bool matvec_mma_fits(const QuantType& type, int64_t n_cols, const DeviceFacts& device);

// Launches y = w norm(x) for the parts of `params`, matrices of `type` as DeviceWeights lays them
// out: on tensor cores where they can, else, and for `exact`, with f32 products in the order of the
// reference. What is of matvec_mma alone is set here. Throws kBackendUnavailable.
void launch_matvec(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
                   const QuantType& type, MatvecParams params, bool swiglu, bool exact);

// Whether two products with one x, of these types in this order, can be one launch (matvec_pair).
bool matvec_pair_fits(const QuantType& first, const QuantType& second, int64_t n_cols,
                      const DeviceFacts& device);

// Launches both products, without SwiGLU, where matvec_pair_fits: as launch_matvec each. Throws
// kBackendUnavailable.
void launch_matvec_pair(const KernelLibrary& kernels, const Stream& stream,
                        const DeviceFacts& device, const QuantType& first_type, MatvecParams first,
                        const QuantType& second_type, MatvecParams second);

}  // namespace apr::cuda
