// Rows to f16 and back: what a 16-bit product with f32 results needs around it.
// scale_rows    y[r] = f16(x[r] * 2^e), the largest |value| in [2^13, 2^14); undo[r] = 2^-e
//               Grid n_rows   Moves n_rows * n_cols * 6 bytes (x twice, the second time from cache)
// unscale_rows  y[part][r] = product[r] * undo[r] * the weights' undo (+ bias), for each part
//               Grid (n_rows, parts)   Moves n_rows * columns * 8 bytes
// Block     256   Shared  32 floats, static
// Assumes   kVector = 4: columns, strides and first columns are multiples of 4, pointers 16-byte
//           aligned (y of scale_rows: 8). kVector = 1: nothing
// Determinism  gpu_to_gpu   Reference  exact up to the rounding to f16
#include "grid_dependency.cuh"
#include "product_rows.cuh"

namespace apr {

template <int kVector>
__global__ void scale_rows(const __grid_constant__ ScaleRowsParams p) {
  __shared__ float scratch[kMaxWarps];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.n_cols;
  grid_dependency_wait();
  grid_dependency_launch();
  float largest = 0.0f;
  for (int col = kVector * threadIdx.x; col < p.n_cols; col += kVector * blockDim.x) {
    largest = fmaxf(largest, Lanes<kVector>::load(p.x + first + col).largest());
  }
  const PowerOfTwo power = power_to_f16(block_max(largest, scratch));
  for (int col = kVector * threadIdx.x; col < p.n_cols; col += kVector * blockDim.x) {
    Lanes<kVector>::load(p.x + first + col).store_f16(p.y.values + first + col, power.up);
  }
  if (threadIdx.x == 0) {
    p.y.undo[blockIdx.x] = power.down;
  }
}

template <int kVector>
__global__ void unscale_rows(const __grid_constant__ UnscaleParams p) {
  const ProductColumns& columns = p.columns[blockIdx.y];
  const int64_t row = blockIdx.x;
  float* y = p.y[blockIdx.y] + row * p.y_stride[blockIdx.y];
  grid_dependency_wait();
  grid_dependency_launch();
  const ProductRow<kVector> product(p.products, columns, row);
  for (int col = kVector * threadIdx.x; col < columns.n_cols; col += kVector * blockDim.x) {
    product.at(col).store(y + col);
  }
}

}  // namespace apr
