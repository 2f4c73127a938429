// Rows to f16 or E4M3 and back: what a 16- or 8-bit product with f32 results needs around it.
// scale_rows    y[r] = f16(x[r] * 2^e), the largest |value| in [2^13, 2^14); undo[r] = 2^-e
//               kE4m3: y[r] = e4m3(x[r] * 2^e), in [2^7, 2^8); undo[r] = 2^-e * 2^6; sm_89
//               Reads   x [n_rows, n_cols] f32
//               Writes  y [n_rows, n_cols] f16 or E4M3, undo [n_rows] f32
//               Grid n_rows   Moves n_rows * n_cols * 6 bytes, or 5 (x twice, the second time from
//               cache)
// unscale_rows  y[part][r] = product[r] * undo[r] * the weights' undo (+ bias), for each part
//               Reads   products [n_splits, n_rows, stride] f32, the splits added up; undo
//                       [n_rows] f32 or none; of each part bias [n_cols] f32 or none and largest,
//                       one f32, from which the weights' undo follows
//               Writes  of each part y [n_rows, y_stride] f32; may be the products
//               Grid (n_rows, parts)   Moves n_rows * columns * 4 * (n_splits + 1) bytes
// Block     whole warps, to most_row_threads()   Shared  32 floats, static
// Assumes   kVector = 4: columns, strides and first columns are multiples of 4, pointers 16-byte
//           aligned (y of scale_rows: 8, E4M3 4). kVector = 1: nothing
// Determinism  gpu_to_gpu   Reference  exact up to the rounding to f16 or E4M3
#include "grid_dependency.cuh"
#include "product_rows.cuh"

namespace apr {

template <int kVector, bool kE4m3 = false>
__global__ void __launch_bounds__(most_row_threads(kVector))
    scale_rows(const __grid_constant__ ScaleRowsParams p) {
  __shared__ float scratch[kMaxWarps];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.n_cols;
  grid_dependency_wait();
  grid_dependency_launch();
  float largest = 0.0f;
  for (int col = kVector * threadIdx.x; col < p.n_cols; col += kVector * blockDim.x) {
    largest = fmaxf(largest, Lanes<kVector>::load(p.x + first + col).largest());
  }
  store_scaled_row<kVector>(scaled_rows<kE4m3>(p), blockIdx.x, p.n_cols, largest, scratch,
                            [&](int col) { return Lanes<kVector>::load(p.x + first + col); });
}

template <int kVector>
__global__ void __launch_bounds__(most_row_threads(kVector))
    unscale_rows(const __grid_constant__ UnscaleParams p) {
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
