// Computes  two of matvec_mma's products in one launch, each of a block type of its own: the q and k
//           of a layer and a v that is kept finer
// Reads     as matvec_mma, twice     Writes  each y [n_rows] f32
// Grid      p.first's blocks, then at least one for p.second
// Block     kMatvecWarps warps, as each product's n_col_warps says
// Shared    dynamic: what the larger of both takes of matvec_mma; static: both warps' sums
// Assumes   as matvec_mma; neither reads what the other writes
// Moves     the weights' bytes + blocks * n_cols * 4 bytes
// Determinism  gpu_to_gpu, for each n_col_warps   Reference  as matvec_mma, with its bound
#include APR_QUANT_FILE         // the type of p.first, named by the kernel row
#include APR_SECOND_QUANT_FILE  // and that of p.second
#include "matvec_tiles.cuh"

namespace apr {

template <class First, class Second>
__global__ void __launch_bounds__(kMatvecWarps * 32, 1)
    matvec_pair(const __grid_constant__ MatvecPairParams p) {
  const int block = static_cast<int>(blockIdx.x), n_blocks = static_cast<int>(gridDim.x);
  if (block < p.n_first_blocks) {
    multiply_parts<First, MatvecEpilogue::kNone>(p.first, block, p.n_first_blocks);
  } else {
    multiply_parts<Second, MatvecEpilogue::kNone>(p.second, block - p.n_first_blocks,
                                                  n_blocks - p.n_first_blocks);
  }
}

}  // namespace apr
