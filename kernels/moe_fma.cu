// Computes  y[pair] = w[expert] x[row of the pair], with `gate` silu(gate[pair]) * that
// Reads     w [n_experts * n_rows, n_cols] in T, x [rows, n_cols] f32, the groups
// Writes    y [pairs, n_rows] f32
// How       a warp decodes a row of weights once for the pairs of a batch; f32 sums in the order of
//           matvec_fma
// Grid      (tiles, any): y shares the rows   Block  whole warps
// Shared    batch_pairs * n_cols * 4 bytes dynamic
// Assumes   n_cols % 8 == 0 and whole blocks
// Moves     tiles * ceil(tile / batch) * n_rows * row_bytes + pairs * n_cols * 4 * grid.y bytes
// Determinism  gpu_to_gpu: a pair's bits do not depend on the others
// Reference cpu::reference::moe_ffn (f32 weights bit for bit, f32 sums)
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "moe_tile.cuh"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "reduce.cuh"
#include "weight.cuh"

namespace apr {

template <class T, bool kPlanes>
__global__ void moe_fma(const __grid_constant__ MoeProductParams p) {
  APR_DYNAMIC_SHARED(float4, shared);
  float* staged = reinterpret_cast<float*>(shared);  // [batch_pairs, n_cols]
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int n_warps = blockDim.x / kWarpSize;
  const int n_cols = p.w.n_cols;
  grid_dependency_wait();
  grid_dependency_launch();
  const MoeTile tile = tile_of(p, blockIdx.x);
  for (int first = 0; first < tile.n_pairs; first += p.batch_pairs) {
    const int n_pairs = min(p.batch_pairs, tile.n_pairs - first);
    __syncthreads();  // the batch before is done
    for (int idx = 0; idx < n_pairs; ++idx) {
      const int64_t row = pair_of(p, tile, first + idx) / p.pairs_of_row;
      for (int col = threadIdx.x; col < n_cols; col += blockDim.x) {
        staged[idx * n_cols + col] = p.x[row * n_cols + col];
      }
    }
    __syncthreads();
    for (int row = blockIdx.y * n_warps + warp; row < p.n_rows; row += gridDim.y * n_warps) {
      float sums[kMoeFmaPairs] = {};
      for (int octet = lane; octet < n_cols / 8; octet += kWarpSize) {
        float weights[8];
        weight_octet<T, kPlanes>(p.w, static_cast<int64_t>(tile.expert) * p.n_rows + row, octet,
                                 weights);
#pragma unroll
        for (int idx = 0; idx < kMoeFmaPairs; ++idx) {
          if (idx < n_pairs) {
            const float4* x = reinterpret_cast<const float4*>(staged + idx * n_cols + 8 * octet);
            const float4 low = x[0], high = x[1];
            sums[idx] += weights[0] * low.x;
            sums[idx] += weights[1] * low.y;
            sums[idx] += weights[2] * low.z;
            sums[idx] += weights[3] * low.w;
            sums[idx] += weights[4] * high.x;
            sums[idx] += weights[5] * high.y;
            sums[idx] += weights[6] * high.z;
            sums[idx] += weights[7] * high.w;
          }
        }
      }
#pragma unroll
      for (int idx = 0; idx < kMoeFmaPairs; ++idx) {
        if (idx < n_pairs) {
          const float value = warp_sum(sums[idx]);
          if (lane == 0) {
            const int64_t at = static_cast<int64_t>(pair_of(p, tile, first + idx)) * p.n_rows + row;
            p.y[at] = gated(p, at, value);
          }
        }
      }
    }
  }
}

}  // namespace apr
