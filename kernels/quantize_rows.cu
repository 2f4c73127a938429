// Computes  x = scale * value + error, |value| <= 127, |error| <= scale / 2, a scale for 32 columns
// Reads     x [n_rows, n_cols] f32
// Writes    values [n_rows, n_cols] i8; scale, sum = scale * (sum of values) [n_rows, n_cols / 32]
// Grid      (n_rows, ceil(n_cols / 256))   Block  256: a warp for each 32 columns   Shared  none
// Assumes   n_cols % 32 == 0   Moves  n_rows * n_cols * 5.25 bytes   Determinism  gpu_to_gpu
// Reference the bound above; where one of 32 values is not finite, scale and sum are NaN
#include "grid_dependency.cuh"
#include "params.h"
#include "reduce.cuh"

namespace apr {

__global__ void quantize_rows(const __grid_constant__ QuantizeRowsParams p) {
  const int col = blockIdx.y * blockDim.x + threadIdx.x;
  grid_dependency_wait();
  grid_dependency_launch();
  if (col >= p.n_cols) {  // whole warps
    return;
  }
  const int64_t at = static_cast<int64_t>(blockIdx.x) * p.n_cols + col;
  const float x = p.x[at];
  // NaN where a value is not finite: a maximum would lose a NaN.
  const float poison = warp_sum(x * 0.0f);
  const float scale = warp_max(fabsf(x)) / 127.0f + poison;
  const int value = scale > 0.0f ? min(max(__float2int_rn(x / scale), -127), 127) : 0;
  p.y.values[at] = static_cast<int8_t>(value);
  const float sum = warp_sum(static_cast<float>(value));  // exact: at most 32 * 127
  if (threadIdx.x % kWarpSize == 0) {
    p.y.scale[at / kWarpSize] = scale;
    p.y.sum[at / kWarpSize] = scale * sum;
  }
}

}  // namespace apr
