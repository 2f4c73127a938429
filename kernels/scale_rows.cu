// Rows to f16 and back: what a 16-bit product with f32 results needs around it.
// scale_rows    y[r] = f16(x[r] * 2^e), the largest |value| in [2^13, 2^14); undo[r] = 2^-e
// unscale_rows  y[r] = x[r] * undo[r] * undo_weight (+ bias)
// Grid      n_rows   Block  256   Shared  32 floats, static   Assumes  nothing
// Moves     n_rows * n_cols * 10 bytes; n_rows * n_cols * 8
// Determinism  gpu_to_gpu   Reference  exact up to the rounding to f16
#include "grid_dependency.cuh"
#include "mma.cuh"
#include "params.h"
#include "power_of_two.cuh"
#include "reduce.cuh"

namespace apr {

__global__ void scale_rows(const __grid_constant__ ScaleRowsParams p) {
  __shared__ float scratch[kMaxWarps];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.n_cols;
  grid_dependency_wait();
  grid_dependency_launch();
  float largest = 0.0f;
  for (int col = threadIdx.x; col < p.n_cols; col += blockDim.x) {
    largest = fmaxf(largest, fabsf(p.x[first + col]));
  }
  const PowerOfTwo power = power_to_f16(block_max(largest, scratch));
  for (int col = threadIdx.x; col < p.n_cols; col += blockDim.x) {
    p.y[first + col] = static_cast<uint16_t>(pack_f16(p.x[first + col] * power.up, 0.0f));
  }
  if (threadIdx.x == 0) {
    p.undo[blockIdx.x] = power.down;
  }
}

__global__ void unscale_rows(const __grid_constant__ UnscaleRowsParams p) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.n_cols;
  grid_dependency_wait();
  grid_dependency_launch();
  const float undo = p.undo == nullptr ? p.undo_weight : p.undo[blockIdx.x] * p.undo_weight;
  for (int col = threadIdx.x; col < p.n_cols; col += blockDim.x) {
    const float value = p.x[first + col] * undo;
    p.y[first + col] = p.bias == nullptr ? value : value + p.bias[col];
  }
}

}  // namespace apr
