// Computes  y[t] = (init[t] + sum over slots of weights[t][slot] * parts[t][slot]) (+ residual[t]),
//           in the order of the slots
// Reads     parts [n_tokens, n_used, n_cols], weights, init, residual   Writes  y, f32
// Grid      (n_tokens, ceil(n_cols / 256))   Block  256   Shared  none   Assumes  nothing
// Moves     n_tokens * n_cols * (n_used + 1 to 3) * 4 bytes
// Determinism  gpu_to_gpu   Reference  cpu::reference::moe_ffn, add: bitwise for given parts
#include "grid_dependency.cuh"
#include "moe_params.h"

namespace apr {

__global__ void moe_combine(const __grid_constant__ MoeCombineParams p) {
  const int col = blockIdx.y * blockDim.x + threadIdx.x;
  const int64_t token = blockIdx.x;
  grid_dependency_wait();
  grid_dependency_launch();
  if (col >= p.n_cols) {
    return;
  }
  const int64_t at = token * p.n_cols + col;
  const float* parts = p.parts + token * p.n_used * p.n_cols + col;
  const float* weights = p.weights + token * p.n_used;
  float sum = p.init == nullptr ? 0.0f : p.init[at];
#pragma unroll 8
  for (int slot = 0; slot < p.n_used; ++slot) {
    sum += weights[slot] * parts[static_cast<int64_t>(slot) * p.n_cols];
  }
  p.y[at] = p.residual == nullptr ? sum : p.residual[at] + sum;
}

}  // namespace apr
