// Computes  products[token, first_col + row] = x[token] w[row] * 2^e of the weights, for few tokens
// Reads     w [n_rows, n_cols] of one block type T, as planes, once for each 64 tokens; x as f16
// Writes    products f32, of each split of the columns apart: whoever reads them adds them up
// How       a block's work is a tile of 128 or 256 rows and a split of the columns. Of 256 columns
//           at a time it copies weights and x asynchronously into a ring; each warp decodes 32 rows
//           of its share of the columns (small_gemm_step.cuh).
// Grid      (any number of blocks, ceil(n_tokens / 64))   Block  512
// Shared    n_slots * small_gemm_slot_bytes(), dynamic
// Assumes   sm_80; n_cols % 8 == 0; x 16-byte aligned; at most as many splits as units of
//           256 columns
// Moves     weights + tiles * n_tokens * n_cols * 2 of x from cache + n_splits * n_tokens * n_rows
//           * 4
// Determinism  gpu_to_gpu, for one n_splits and row_warps_log2
// Reference dot products in f64 (tests/gpu_tier_test.cpp); bound: x and w rounded to 11 bits
#include "async_copy.cuh"
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "power_of_two.cuh"
#include "small_gemm_params.h"
#include "small_gemm_step.cuh"

namespace apr {

constexpr int kSmallGemmThreads = kSmallGemmWarps * kWarpSize;

// Starts copying the weights of an item: units of 16 rows, one or two warps each.
template <class T>
__device__ __forceinline__ void copy_tile(const SmallGemmParams& p, uint32_t to, int tile, int k) {
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  constexpr int kWarpBytes = 16 * kWarpSize;
  const unsigned lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const unsigned unit_of_warp = warp & ((2u << p.row_warps_log2) - 1);
  const unsigned n_row_units = 2u << p.row_warps_log2, n_shares = 8u >> p.row_warps_log2;
  const ProductPart& part = part_of(p, tile);
  const int unit = (tile - part.first_tile) * static_cast<int>(n_row_units) + unit_of_warp;
  if (unit * quant::kUnitRows < part.n_rows) {
    const uint8_t* from =
        part.data + (static_cast<int64_t>(unit) * quant::units_of(p.n_cols) + k) * kUnitBytes;
    to += unit_of_warp * kUnitBytes;
    unsigned byte = (warp >> (p.row_warps_log2 + 1)) * kWarpBytes + 16 * lane;
#pragma unroll 1
    for (; byte < kUnitBytes; byte += n_shares * kWarpBytes) {
      copy_async<16>(to + byte, from + byte);
    }
  }
}

// Starts copying 256 columns of the block's tokens; those past the end are zero, as are columns.
__device__ __forceinline__ void copy_tokens(const SmallGemmParams& p, uint32_t to, int first_token,
                                            int n_token_tiles, int k) {
  constexpr int kPieces = quant::kUnitCols / 8;
  const int col = k * quant::kUnitCols + threadIdx.x % kPieces * 8;
#pragma unroll 1
  for (int token = threadIdx.x / kPieces; token < 8 * n_token_tiles;
       token += kSmallGemmThreads / kPieces) {
    const bool valid = first_token + token < p.n_tokens && col < p.n_cols;
    copy_async_or_zero(
        to + token * kSmallGemmXBytes + threadIdx.x % kPieces * 16,
        p.x + (valid ? static_cast<int64_t>(first_token + token) * p.n_cols + col : 0), valid);
  }
}

// Work of a block: a row tile and a split of the units of 256 columns, every gridDim.x-th.
struct Work {
  int idx;
  int k, end;  // units

  __device__ __forceinline__ Work(const SmallGemmParams& p) { start(p, blockIdx.x); }
  __device__ __forceinline__ bool is_there(const SmallGemmParams& p) const {
    return idx < p.n_tiles * p.n_splits;
  }
  __device__ __forceinline__ void start(const SmallGemmParams& p, int at) {
    const int n_units = quant::units_of(p.n_cols);
    const int split = at / p.n_tiles;
    idx = at;
    k = split * n_units / p.n_splits;
    end = (split + 1) * n_units / p.n_splits;
  }
  // To the next unit, of the next work where this one has no more.
  __device__ __forceinline__ void advance(const SmallGemmParams& p) {
    if (++k == end) {
      start(p, idx + gridDim.x);
    }
  }
};

// Sums of 16 rows by 8 tokens to their places.
__device__ __forceinline__ void store_products(const SmallGemmParams& p, float* products,
                                               int first_row, int n_rows, int first_token,
                                               const float (&sums)[4]) {
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int elem = 0; elem < 4; ++elem) {
    const int row = first_row + lane / 4 + 8 * (elem / 2);
    const int token = first_token + 2 * (lane % 4) + elem % 2;
    if (row < n_rows && token < p.n_tokens) {
      products[token * p.stride + row] = sums[elem];
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kSmallGemmThreads, 1)
    small_gemm(const __grid_constant__ SmallGemmParams p) {
  constexpr int kMostTiles = kSmallGemmTokens / 8;
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  APR_DYNAMIC_SHARED(uint8_t, shared);
  const int lane = threadIdx.x % kWarpSize;
  // By a shuffle, so that the compiler knows it to be one for the whole warp.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / kWarpSize), 0);
  const int n_row_warps = 1 << p.row_warps_log2, n_col_warps = kSmallGemmWarps >> p.row_warps_log2;
  const int row_warp = warp & (n_row_warps - 1), col_warp = warp >> p.row_warps_log2;
  const int first_token = blockIdx.y * kSmallGemmTokens;
  const int n_token_tiles = (min(kSmallGemmTokens, p.n_tokens - first_token) + 7) / 8;
  const int weight_bytes = small_gemm_weight_bytes(kUnitBytes, n_row_warps);
  const int slot_bytes = small_gemm_slot_bytes(kUnitBytes, n_row_warps, n_token_tiles);
  const uint32_t ring = shared_address(shared);

  // Weights come early: they depend on no kernel before this one.
  Work next(p);  // to copy
#pragma unroll 1
  for (int slot = 0; slot < p.n_slots - 1 && next.is_there(p); ++slot) {
    copy_tile<T>(p, ring + slot * slot_bytes, next.idx % p.n_tiles, next.k);
    next.advance(p);
  }
  grid_dependency_wait();
  grid_dependency_launch();
  Work work(p);
  next = work;
#pragma unroll 1
  for (int slot = 0; slot < p.n_slots - 1; ++slot) {
    if (next.is_there(p)) {
      copy_tokens(p, ring + slot * slot_bytes + weight_bytes, first_token, n_token_tiles, next.k);
      next.advance(p);
    }
    copy_group_end();
  }

  float sums[2][kMostTiles][4] = {};
  float up = 1.0f;
  int slot = 0;
  bool begins = true;
  while (work.is_there(p)) {
    if (begins) {
      up = power_to_f16(*part_of(p, work.idx % p.n_tiles).largest).up;
    }
    if (p.n_slots == 2) {
      copy_groups_wait<0>();
    } else if (p.n_slots == 3) {
      copy_groups_wait<1>();
    } else {
      copy_groups_wait<2>();
    }
    __syncthreads();  // the item has arrived for all, and all are done with the one before
    if (next.is_there(p)) {
      const uint32_t to = ring + (slot == 0 ? p.n_slots - 1 : slot - 1) * slot_bytes;
      copy_tokens(p, to + weight_bytes, first_token, n_token_tiles, next.k);
      copy_tile<T>(p, to, next.idx % p.n_tiles, next.k);
      next.advance(p);
    }
    copy_group_end();
    uint8_t* const in_slot = shared + slot * slot_bytes;
    multiply_item<T>(in_slot + row_warp * 2 * kUnitBytes,
                     in_slot + weight_bytes + lane / 4 * kSmallGemmXBytes + lane % 4 * 8, col_warp,
                     p.row_warps_log2, n_token_tiles, up, sums);
    slot = slot + 1 == p.n_slots ? 0 : slot + 1;
    const int done = work.idx;
    work.advance(p);
    begins = work.idx != done;
    if (!begins) {
      continue;
    }

    // The sums of the warps with other columns, in their order, through the x of this item, which
    // holds those of 16 rows by the block's tokens for 8 warps.
    float* const exchange = reinterpret_cast<float*>(in_slot + weight_bytes);
    const int halves_at_once = n_row_warps == 8 ? 1 : 2;
#pragma unroll 1
    for (int from = 1; from < n_col_warps; ++from) {
#pragma unroll
      for (int round = 0; round < 2; ++round) {
        if (round * halves_at_once >= 2) {
          break;
        }
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float* mine = exchange + (half % halves_at_once * n_row_warps + row_warp) *
                                       n_token_tiles * 4 * kWarpSize;
          if (half / halves_at_once == round && col_warp == from) {
#pragma unroll
            for (int tokens = 0; tokens < kMostTiles; ++tokens) {
              if (tokens < n_token_tiles) {
#pragma unroll
                for (int elem = 0; elem < 4; ++elem) {
                  mine[(tokens * 4 + elem) * kWarpSize + lane] = sums[half][tokens][elem];
                }
              }
            }
          }
        }
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* theirs = exchange + (half % halves_at_once * n_row_warps + row_warp) *
                                               n_token_tiles * 4 * kWarpSize;
          if (half / halves_at_once == round && col_warp == 0) {
#pragma unroll
            for (int tokens = 0; tokens < kMostTiles; ++tokens) {
              if (tokens < n_token_tiles) {
#pragma unroll
                for (int elem = 0; elem < 4; ++elem) {
                  sums[half][tokens][elem] += theirs[(tokens * 4 + elem) * kWarpSize + lane];
                }
              }
            }
          }
        }
      }
    }

    const int tile = done % p.n_tiles, split = done / p.n_tiles;
    const ProductPart& part = part_of(p, tile);
    const int first_row = ((tile - part.first_tile) * n_row_warps + row_warp) * 32;
    float* const products = p.products + split * p.split_stride + part.first_col;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int tokens = 0; tokens < kMostTiles; ++tokens) {
        if (tokens < n_token_tiles && col_warp == 0) {
          store_products(p, products, first_row + 16 * half, part.n_rows, first_token + 8 * tokens,
                         sums[half][tokens]);
        }
#pragma unroll
        for (int elem = 0; elem < 4; ++elem) {
          sums[half][tokens][elem] = 0.0f;
        }
      }
    }
  }
}

}  // namespace apr
