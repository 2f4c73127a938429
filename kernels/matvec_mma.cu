// Computes  y = w norm(x) (+ bias) (+ residual) for up to three w; kSwiglu: silu(w x) * (w1 x)
// Reads     x [n_cols] f32, each w [n_rows, n_cols] in a block type T, as planes
// Writes    each y [n_rows] f32
// How       see matvec_tiles.cuh
// Grid      any number of blocks, which share the tiles of 16 rows
// Block     kMatvecWarps warps: n_col_warps share a tile's columns, the others take other tiles;
//           kSwiglu: the even ones of a tile have w, the odd ones w1
// Shared    dynamic: the staged x (staged_x.cuh), the rings, the grid; static: the warps' sums, of
//           rows and of squares
// Assumes   sm_80; n_cols % 32 == 0; kSwiglu: n_col_warps >= 2; x, norm_weight 16-byte aligned
// Moves     the weights' bytes + blocks * n_cols * 4 bytes
// Determinism  gpu_to_gpu, for one n_col_warps   Reference  cpu::reference::matmul; bound: x
//           rounded to 1 / 65024 of the largest of its 32
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "matvec_tiles.cuh"

namespace apr {

template <class T, MatvecEpilogue kEpilogue>
__global__ void __launch_bounds__(kMatvecWarps * 32, 1)
    matvec_mma(const __grid_constant__ MatvecParams p) {
  multiply_parts<T, kEpilogue>(p, blockIdx.x, gridDim.x);
}

}  // namespace apr
