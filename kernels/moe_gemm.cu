// Computes  y[pair] = w[expert] x[row of the pair], with `gate` silu(gate[pair]) * that
// Reads     w [n_experts * n_rows, n_cols] in a block type T, as planes; x as f16 rows; the groups
// Writes    y [pairs, n_rows] f32
// How       a block has up to 128 pairs of one expert and 64 rows of its matrix. Step by step, 64
//           columns each: x comes by asynchronous copies, gathered by pair; the units of weights
//           (256 columns) too, and are decoded from shared memory to f16 of value * power of two;
//           tensor cores multiply while the copies of the next step run.
// Grid      (tiles, ceil(n_rows / 64))   Block  256   Shared  moe_gemm_shared_bytes<T>(), dynamic
// Assumes   sm_80; groups with tiles of at most 128; n_rows % 16 == 0, n_cols % 32 == 0; x 16-byte
//           aligned
// Moves     tiles * n_rows * row_bytes + tiles * 128 * n_cols * 2 * grid.y + pairs * n_rows * 4
// Determinism  gpu_to_gpu: a pair's bits do not depend on the others
// Reference cpu::reference::moe_ffn; bound: w and x rounded to 11 bits each
#include "async_copy.cuh"
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "mma.cuh"
#include "moe_gemm_layout.cuh"
#include "moe_tile.cuh"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "power_of_two.cuh"
#include "reduce.cuh"
#include "tile_mma.cuh"
#include "tile_offset.cuh"

namespace apr {

constexpr int kStepBytes = kMoeGemmDepth * 2;                   // of a row of a tile
constexpr int kStepsOfUnit = quant::kUnitCols / kMoeGemmDepth;  // 4
constexpr int kMoeThreads = kMoeGemmWarps * kWarpSize;          // 256
constexpr int kCopiesOfX = kMoeXBytes / 16 / kMoeThreads;       // 4 pieces of 16 bytes a thread
constexpr int kRowsOfCopy = kMoeThreads / (kStepBytes / 16);    // 32
constexpr int kDecodedCols = kMoeGemmRows * kMoeGemmDepth / kMoeThreads;  // 16 of a thread

// Starts copying the units of 256 columns of the block's rows: whole units, `n_units` of 16 rows.
template <class T>
__device__ __forceinline__ void copy_weights(uint32_t to, const uint8_t* from, int64_t stride_bytes,
                                             int n_units) {
  constexpr int kPieces = quant::unit_bytes<T>() / 16;
  for (int unit = 0; unit < n_units; ++unit) {
    for (int piece = threadIdx.x; piece < kPieces; piece += kMoeThreads) {
      copy_async<16>(to + unit * quant::unit_bytes<T>() + 16 * piece,
                     from + unit * stride_bytes + 16 * piece);
    }
  }
}

// Decodes 64 columns of the block's rows, of a unit in shared memory, to f16 in a tile.
template <class T>
__device__ __forceinline__ void decode_step(const uint8_t* units, uint8_t* tile, int step,
                                            float scale) {
  constexpr int kThreadsOfRow = kMoeGemmDepth / kDecodedCols;  // 4
  const int row = threadIdx.x / kThreadsOfRow;
  const int first_col = threadIdx.x % kThreadsOfRow * kDecodedCols;  // in the step
  const int col = step * kMoeGemmDepth + first_col;                  // in the unit
  const quant::PlanesBlock<T> block{units + row / quant::kUnitRows * quant::unit_bytes<T>(),
                                    row % quant::kUnitRows, col / T::kBlockElems};
  uint32_t pairs[kDecodedCols / 2];
#pragma unroll
  for (int octet = 0; octet < kDecodedCols / 8; ++octet) {
    float values[8];
    quant::decode8<T>(block, col % T::kBlockElems / 8 + octet, values);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      pairs[4 * octet + pair] = pack_f16(values[2 * pair] * scale, values[2 * pair + 1] * scale);
    }
  }
#pragma unroll
  for (int octet = 0; octet < kDecodedCols / 8; ++octet) {
    *reinterpret_cast<uint4*>(tile + tile_offset<kStepBytes>(row, first_col / 8 + octet)) =
        make_uint4(pairs[4 * octet], pairs[4 * octet + 1], pairs[4 * octet + 2],
                   pairs[4 * octet + 3]);
  }
}

template <class T>
__global__ void __launch_bounds__(kMoeThreads, 2)
    moe_gemm(const __grid_constant__ MoeProductParams p) {
  constexpr int kTilesOfWarp = kMoeGemmPairs / 16 / 4;  // of 16 pairs: 2
  constexpr int kColumnsOfWarp = kMoeGemmRows / 2 / 8;  // of 8 rows of weights: 4
  APR_DYNAMIC_SHARED(uint8_t, shared);
  uint8_t* const w_tiles = shared + 2 * kMoeXBytes;
  uint8_t* const quants = w_tiles + 2 * kMoeWBytes;
  const uint32_t x_address = shared_address(shared), w_address = shared_address(w_tiles),
                 quant_address = shared_address(quants);
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int warp_tile = warp % 4, warp_col = warp / 4;
  const int n_cols = p.w.n_cols;
  const int n_steps = (n_cols + kMoeGemmDepth - 1) / kMoeGemmDepth;
  const int n_units = quant::units_of(n_cols);
  const int first_row = blockIdx.y * kMoeGemmRows;
  grid_dependency_wait();
  grid_dependency_launch();
  const MoeTile tile = tile_of(p, blockIdx.x);
  if (tile.n_pairs == 0) {
    return;
  }
  const float scale = power_to_f16(*p.largest).up;
  const int n_row_units = min(kMoeGemmRows, p.n_rows - first_row) / quant::kUnitRows;
  const int64_t unit_stride = static_cast<int64_t>(n_units) * quant::unit_bytes<T>();
  const uint8_t* const w = p.w.data + (static_cast<int64_t>(tile.expert) * p.n_rows + first_row) /
                                          quant::kUnitRows * unit_stride;

  // What this thread copies of x: one piece of each of four rows.
  const int piece = threadIdx.x % (kStepBytes / 16), copy_row = threadIdx.x / (kStepBytes / 16);
  const uint16_t* x_rows[kCopiesOfX];
#pragma unroll
  for (int copy = 0; copy < kCopiesOfX; ++copy) {
    const int place = copy_row + copy * kRowsOfCopy;
    // Places past the end repeat the first pair and are not stored.
    const int pair = pair_of(p, tile, place < tile.n_pairs ? place : 0);
    x_rows[copy] = p.x_f16.values + static_cast<int64_t>(pair / p.pairs_of_row) * n_cols;
  }
  const auto copy_x = [&](int step) {
    const int col = step * kMoeGemmDepth + 8 * piece;
    const uint32_t to = x_address + step % 2 * kMoeXBytes;
#pragma unroll
    for (int copy = 0; copy < kCopiesOfX; ++copy) {
      copy_async_or_zero(to + tile_offset<kStepBytes>(copy_row + copy * kRowsOfCopy, piece),
                         x_rows[copy] + (col < n_cols ? col : 0), col < n_cols);
    }
  };

  // A group of copies closes each step; those of the weights have two steps to arrive.
  copy_weights<T>(quant_address, w, unit_stride, n_row_units);
  copy_x(0);
  copy_group_end();
  copy_group_end();
  float sums[kTilesOfWarp][kColumnsOfWarp][4] = {};
  for (int step = 0; step < n_steps; ++step) {
    const int unit = step / kStepsOfUnit, buffer = step % 2;
    copy_groups_wait<1>();
    if (step % kStepsOfUnit == 0) {
      __syncthreads();  // the unit has arrived for all
    }
    decode_step<T>(quants + unit % 2 * moe_quant_bytes<T>(), w_tiles + buffer * kMoeWBytes,
                   step % kStepsOfUnit, scale);
    __syncthreads();  // tiles are whole, the products of the step before done
    if (step + 1 < n_steps) {
      copy_x(step + 1);
    }
    copy_group_end();
    if (step % kStepsOfUnit == 0 && unit + 1 < n_units) {
      copy_weights<T>(quant_address + (unit + 1) % 2 * moe_quant_bytes<T>(),
                      w + static_cast<int64_t>(unit + 1) * quant::unit_bytes<T>(), unit_stride,
                      n_row_units);
    }
    copy_group_end();
    const uint32_t x_tile = x_address + buffer * kMoeXBytes;
    const uint32_t w_tile = w_address + buffer * kMoeWBytes;
#pragma unroll
    for (int k = 0; k < kMoeGemmDepth / 16; ++k) {
      uint32_t b[kColumnsOfWarp / 2][4];
#pragma unroll
      for (int pair = 0; pair < kColumnsOfWarp / 2; ++pair) {
        const int row = warp_col * (kMoeGemmRows / 2) + 16 * pair + lane / 16 * 8 + lane % 8;
        load_matrices(b[pair], w_tile + tile_offset<kStepBytes>(row, 2 * k + lane / 8 % 2));
      }
#pragma unroll
      for (int idx = 0; idx < kTilesOfWarp; ++idx) {
        const int first = 16 * (warp_tile + 4 * idx);
        if (first < tile.n_pairs) {
          uint32_t a[4];
          load_matrices(a, x_tile + tile_offset<kStepBytes>(first + lane % 16, 2 * k + lane / 16));
#pragma unroll
          for (int col = 0; col < kColumnsOfWarp; ++col) {
            const uint32_t columns[2] = {b[col / 2][col % 2 * 2], b[col / 2][col % 2 * 2 + 1]};
            mma_16x8x16(sums[idx][col], a, columns);
          }
        }
      }
    }
  }

  const float undo_weight = power_to_f16(*p.largest).down;
#pragma unroll
  for (int idx = 0; idx < kTilesOfWarp; ++idx) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = 16 * (warp_tile + 4 * idx) + 8 * half + lane / 4;
      if (place < tile.n_pairs) {
        const int pair = pair_of(p, tile, place);
        const float undo_row = p.x_f16.undo[pair / p.pairs_of_row];
#pragma unroll
        for (int col = 0; col < kColumnsOfWarp; ++col) {
          const int row = first_row + warp_col * (kMoeGemmRows / 2) + 8 * col + lane % 4 * 2;
          if (row < p.n_rows) {
            const int64_t at = static_cast<int64_t>(pair) * p.n_rows + row;
            // One power after the other: together they may leave the range of f32.
            const float low = sums[idx][col][2 * half] * undo_row * undo_weight;
            const float high = sums[idx][col][2 * half + 1] * undo_row * undo_weight;
            *reinterpret_cast<float2*>(p.y + at) =
                make_float2(gated(p, at, low), gated(p, at + 1, high));
          }
        }
      }
    }
  }
}

}  // namespace apr
