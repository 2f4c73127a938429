// Computes  y[t] = token_embd[ids[t]]
// Reads     ids [n_tokens], rows of table in T      Writes  y [n_tokens, model_dim] f32
// Grid      (ceil(model_dim / 2048), n_tokens)   Block  256 threads, 8 values each   Shared  none
// Assumes   n_cols % 8 == 0; every id in [0, n_rows)
// Moves     n_tokens * (row_bytes + model_dim * 4) bytes
// Determinism  gpu_to_gpu   Reference  cpu::reference::embed, bitwise
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "grid_dependency.cuh"
#include "params.h"
#include "weight.cuh"

namespace apr {

template <class T, bool kPlanes>
__global__ void embed(const __grid_constant__ EmbedParams p) {
  const int octet = blockIdx.x * blockDim.x + threadIdx.x;
  grid_dependency_wait();
  grid_dependency_launch();
  if (8 * octet >= p.table.n_cols) {
    return;
  }
  float values[8];
  weight_octet<T, kPlanes>(p.table, p.ids[blockIdx.y], octet, values);
  float* out = p.y + static_cast<int64_t>(blockIdx.y) * p.table.n_cols + 8 * octet;
#pragma unroll
  for (int elem = 0; elem < 8; ++elem) {
    out[elem] = values[elem];
  }
}

}  // namespace apr
