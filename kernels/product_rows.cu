// The passes between the products of a prefill layer, one each: what stands between two GEMMs is
// read once and written once.
// swiglu_rows    y = silu(gate) * up
// sum_norm_rows  sum = x + product; y = sum / sqrt(mean(sum^2) + eps) * weight
// Reads     products [n_rows, stride] f32 with what undoes their scaling; x [n_rows, n_cols] f32
// Writes    y [n_rows, n_cols] as f16 rows with a power of two each, or f32; sum f32. kE4m3: y as
//           E4M3 rows, sm_89
// Grid      n_rows   Block  whole warps, to most_row_threads()
// Shared    n_cols * 4 bytes with `keep`, 256 bytes static
// Assumes   kVector = 4: columns, strides and first columns are multiples of 4, pointers 16-byte
//           aligned (f16: 8, E4M3: 4). kVector = 1: nothing
// Moves     swiglu_rows n_rows * n_cols * (8 + 2), sum_norm_rows n_rows * n_cols * (12 + 2) bytes
//           (E4M3: + 1); without `keep` inputs are read again
// Determinism  gpu_to_gpu, for one block size
// Reference cpu::reference::swiglu, add (bitwise up to the product), rms_norm
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "product_rows.cuh"
#include "sigmoid.cuh"

namespace apr {

template <int kVector, bool kE4m3 = false>
__global__ void __launch_bounds__(most_row_threads(kVector))
    swiglu_rows(const __grid_constant__ SwigluRowsParams p) {
  APR_DYNAMIC_SHARED(float, kept);  // [n_cols], each column its thread's own
  __shared__ float scratch[kMaxWarps];
  const int64_t row = blockIdx.x;
  const int n_cols = p.gate.n_cols;
  grid_dependency_wait();
  grid_dependency_launch();
  const ProductRow<kVector> gate(p.products, p.gate, row), up(p.products, p.up, row);
  const auto activate = [&](int col) {
    Lanes<kVector> a = gate.at(col);
    const Lanes<kVector> b = up.at(col);
#pragma unroll
    for (int lane = 0; lane < kVector; ++lane) {
      a.v[lane] = times_sigmoid(a.v[lane], a.v[lane]) * b.v[lane];
    }
    return a;
  };
  const auto y = scaled_rows<kE4m3>(p);
  const bool scales = y.values != nullptr;
  float largest = 0.0f;
  for (int col = kVector * threadIdx.x; col < n_cols; col += kVector * blockDim.x) {
    const Lanes<kVector> lanes = activate(col);
    if (!scales) {
      lanes.store(p.y_f32 + row * n_cols + col);
    } else if (p.keep) {
      lanes.store(kept + col);
    }
    largest = fmaxf(largest, lanes.largest());
  }
  if (scales) {
    store_scaled_row<kVector>(y, row, n_cols, largest, scratch, [&](int col) {
      return p.keep ? Lanes<kVector>::load(kept + col) : activate(col);
    });
  }
}

template <int kVector, bool kE4m3 = false>
__global__ void __launch_bounds__(most_row_threads(kVector))
    sum_norm_rows(const __grid_constant__ SumNormRowsParams p) {
  APR_DYNAMIC_SHARED(float, kept);  // [n_cols], each column its thread's own
  __shared__ float sum_scratch[kMaxWarps], max_scratch[kMaxWarps];
  const int64_t row = blockIdx.x;
  const int64_t first = row * p.n_cols;
  grid_dependency_wait();
  grid_dependency_launch();
  const bool has_products = p.products.data != nullptr;
  const float* normed = has_products ? p.sum : p.x;  // as this thread wrote it
  float squares = 0.0f;
  for (int col = kVector * threadIdx.x; col < p.n_cols; col += kVector * blockDim.x) {
    Lanes<kVector> lanes = Lanes<kVector>::load(p.x + first + col);
    if (has_products) {
      const Lanes<kVector> added = ProductRow<kVector>(p.products, p.columns, row).at(col);
#pragma unroll
      for (int lane = 0; lane < kVector; ++lane) {
        lanes.v[lane] += added.v[lane];
      }
      lanes.store(p.sum + first + col);
    }
    if (p.keep) {
      lanes.store(kept + col);
    }
#pragma unroll
    for (int lane = 0; lane < kVector; ++lane) {
      squares += lanes.v[lane] * lanes.v[lane];
    }
  }
  if (p.norm_weight == nullptr) {
    return;
  }
  const float mean = __fdiv_rn(block_sum(squares, sum_scratch), static_cast<float>(p.n_cols));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
  const auto norm = [&](int col) {
    Lanes<kVector> lanes =
        p.keep ? Lanes<kVector>::load(kept + col) : Lanes<kVector>::load(normed + first + col);
    const Lanes<kVector> weight = Lanes<kVector>::load(p.norm_weight + col);
#pragma unroll
    for (int lane = 0; lane < kVector; ++lane) {
      lanes.v[lane] = lanes.v[lane] * scale * weight.v[lane];
    }
    return lanes;
  };
  const auto y = scaled_rows<kE4m3>(p);
  const bool scales = y.values != nullptr;
  float largest = 0.0f;
  for (int col = kVector * threadIdx.x; col < p.n_cols; col += kVector * blockDim.x) {
    const Lanes<kVector> lanes = norm(col);
    if (!scales) {
      lanes.store(p.y_f32 + first + col);
    }
    largest = fmaxf(largest, lanes.largest());
  }
  if (scales) {
    store_scaled_row<kVector>(y, row, p.n_cols, largest, max_scratch, norm);
  }
}

}  // namespace apr
