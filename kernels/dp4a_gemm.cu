// Computes  y[t][r] = sum over sub-blocks b of 32 columns of
//             scale_w(r, b) scale_x(t, b) (quants . values) + min_w(r, b) sum_x(t, b)   (+ bias[r])
// Reads     w in T, planes; x as 8-bit rows (quantize_rows.cu)   Writes  y [n_tokens, n_rows] f32
// Grid      (ceil(n_rows / 64), ceil(n_tokens / 64))   Block  256: 4 x 4 results a thread
// Shared    5.6 KiB, static   Assumes  n_cols % 256 == 0, 8-bit rows 4-byte aligned
// Moves     row_bytes * n_rows * ceil(n_tokens / 64) + n_tokens * n_cols * ceil(n_rows / 64) +
//           n_tokens * n_rows * 4 bytes
// Determinism  gpu_to_gpu   Reference  cpu::reference::matmul of the 8-bit activations
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "grid_dependency.cuh"
#include "weight.cuh"

namespace apr {

template <class T>
__global__ void dp4a_gemm(const __grid_constant__ Dp4aGemmParams p) {
  constexpr int kSubElems = 32;
  static_assert(T::kGroupElems == kSubElems && T::kHasOffset && T::kQuantBias == 0);
  constexpr int kTile = 64, kPerThread = 4, kWords = kSubElems / 4;
  constexpr int kThreadsAcross = kTile / kPerThread;
  __shared__ int w_quants[kTile][kWords + 1], x_values[kTile][kWords + 1];  // + 1: no bank conflict
  __shared__ float w_scale[kTile], w_min[kTile], x_scale[kTile], x_sum[kTile];
  const int first_row = blockIdx.x * kTile, first_token = blockIdx.y * kTile;
  const int across = threadIdx.x % kThreadsAcross, down = threadIdx.x / kThreadsAcross;
  const int n_subs = p.w.n_cols / kSubElems;
  constexpr int kSubsOfBlock = T::kBlockElems / kSubElems;
  grid_dependency_wait();
  grid_dependency_launch();
  float acc[kPerThread][kPerThread] = {};
  for (int sub = 0; sub < n_subs; ++sub) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int slot = threadIdx.x + part * blockDim.x;
      const int line = slot / kWords, word = slot % kWords;
      // Rows and tokens past the end repeat the last one and are not stored.
      const auto block =
          weight_block<T, true>(p.w, min(first_row + line, p.w.n_rows - 1), sub / kSubsOfBlock);
      w_quants[line][word] =
          static_cast<int>(T::quants4(block, sub % kSubsOfBlock * kWords + word));
      const int64_t token = min(first_token + line, p.n_tokens - 1);
      x_values[line][word] = *reinterpret_cast<const int*>(p.x.values + token * p.w.n_cols +
                                                           sub * kSubElems + 4 * word);
    }
    if (threadIdx.x < kTile) {
      const auto block = weight_block<T, true>(
          p.w, min(first_row + static_cast<int>(threadIdx.x), p.w.n_rows - 1), sub / kSubsOfBlock);
      const quant::Affine affine = T::affine(block, sub % kSubsOfBlock);
      w_scale[threadIdx.x] = affine.scale;
      w_min[threadIdx.x] = affine.offset;
    } else if (threadIdx.x < 2 * kTile) {
      const int line = threadIdx.x - kTile;
      const int64_t token = min(first_token + line, p.n_tokens - 1);
      x_scale[line] = p.x.scale[token * n_subs + sub];
      x_sum[line] = p.x.sum[token * n_subs + sub];
    }
    __syncthreads();
    int dots[kPerThread][kPerThread] = {};
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      int w[kPerThread], x[kPerThread];
#pragma unroll
      for (int idx = 0; idx < kPerThread; ++idx) {
        w[idx] = w_quants[across + kThreadsAcross * idx][word];
        x[idx] = x_values[down + kThreadsAcross * idx][word];
      }
#pragma unroll
      for (int t = 0; t < kPerThread; ++t) {
#pragma unroll
        for (int r = 0; r < kPerThread; ++r) {
          dots[t][r] = __dp4a(w[r], x[t], dots[t][r]);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kPerThread; ++t) {
      const int token_line = down + kThreadsAcross * t;
#pragma unroll
      for (int r = 0; r < kPerThread; ++r) {
        const int row_line = across + kThreadsAcross * r;
        acc[t][r] += w_scale[row_line] * x_scale[token_line] * static_cast<float>(dots[t][r]) +
                     w_min[row_line] * x_sum[token_line];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int t = 0; t < kPerThread; ++t) {
    const int token = first_token + down + kThreadsAcross * t;
#pragma unroll
    for (int r = 0; r < kPerThread; ++r) {
      const int row = first_row + across + kThreadsAcross * r;
      if (token < p.n_tokens && row < p.w.n_rows) {
        p.y[static_cast<int64_t>(token) * p.w.n_rows + row] =
            p.bias == nullptr ? acc[t][r] : acc[t][r] + p.bias[row];
      }
    }
  }
}

}  // namespace apr
