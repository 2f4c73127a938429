// Computes  products[token, first_col + row] = x[token] w[row] * 2^e of the weights, for few tokens
// Reads     w [n_rows, n_cols] of one block type T, as planes, once for each 64 tokens; x as f16
// Writes    products f32; partials, arrived
// How       the work is the row tiles of all parts by their units of 256 columns, in one line that
//           the blocks share evenly. Of each item a block copies weights and x asynchronously into
//           a ring; each warp decodes 32 rows of its share of the columns (small_gemm_step.cuh).
//           A tile that several blocks have a piece of is added up by the last of them, in the
//           order of blocks.
// Grid      (any number of blocks up to the items, ceil(n_tokens / 64))   Block  512
// Shared    n_slots * small_gemm_slot_bytes(), dynamic; 4 bytes
// Assumes   sm_80; n_cols % 8 == 0; x 16-byte aligned; n_tokens at most 32 where kOutside
// Moves     weights + items * tokens * 512 bytes of x from cache + n_tokens * n_rows * 4, and the
//           partial sums twice, which stay in cache
// Determinism  for one grid: gpu_to_gpu
// Reference dot products in f64 (tests/gpu_tier_test.cpp); bound: x rounded to 11 bits, and, where
//           not kOutside, w
#include "async_copy.cuh"
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "power_of_two.cuh"
#include "small_gemm_params.h"
#include "small_gemm_step.cuh"

namespace apr {

constexpr int kSmallGemmThreads = kSmallGemmWarps * kWarpSize;
constexpr int kPartialElems = kSmallGemmRows * kSmallGemmTokens;

// The share of a block in a line of items.
struct ItemLine {
  int64_t n_items;

  __device__ int begin(int block) const {
    return static_cast<int>(block * n_items / static_cast<int>(gridDim.x));
  }
  __device__ int block_of(int item) const {
    return static_cast<int>(((item + int64_t{1}) * gridDim.x - 1) / n_items);
  }
};

__device__ __forceinline__ const SmallGemmPart& part_of(const SmallGemmParams& p, int tile) {
  int part = p.n_parts - 1;
  while (tile < p.parts[part].first_tile) {
    --part;
  }
  return p.parts[part];
}

// Starts copying the weights of an item: units of 16 rows, one or two warps each.
template <class T>
__device__ __forceinline__ void copy_tile(const SmallGemmParams& p, uint32_t to, int tile, int k) {
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  constexpr int kWarpBytes = 16 * kWarpSize;
  const unsigned lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const unsigned unit_of_warp = warp & ((2u << p.row_warps_log2) - 1);
  const unsigned n_row_units = 2u << p.row_warps_log2, n_shares = 8u >> p.row_warps_log2;
  const SmallGemmPart& part = part_of(p, tile);
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

// Sums of 16 rows by 8 tokens to their places, times `scale`.
__device__ __forceinline__ void store_products(const SmallGemmParams& p, const SmallGemmPart& part,
                                               int first_row, int first_token, float scale,
                                               const float (&sums)[4]) {
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int elem = 0; elem < 4; ++elem) {
    const int row = first_row + lane / 4 + 8 * (elem / 2);
    const int token = first_token + 2 * (lane % 4) + elem % 2;
    if (row < part.n_rows && token < p.n_tokens) {
      p.products[token * p.stride + part.first_col + row] = sums[elem] * scale;
    }
  }
}

template <class T, bool kOutside>
__global__ void __launch_bounds__(kSmallGemmThreads, 1)
    small_gemm(const __grid_constant__ SmallGemmParams p) {
  constexpr int kMostTiles = (kOutside ? kScaledOutsideTokens : kSmallGemmTokens) / 8;
  constexpr int kUnitBytes = quant::unit_bytes<T>();
  APR_DYNAMIC_SHARED(uint8_t, shared);
  __shared__ bool is_last;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int n_row_warps = 1 << p.row_warps_log2, n_col_warps = kSmallGemmWarps >> p.row_warps_log2;
  const int row_warp = warp & (n_row_warps - 1), col_warp = warp >> p.row_warps_log2;
  const int steps_of_warp = quant::kUnitCols / kStepCols<kOutside> >> (4 - p.row_warps_log2);
  const int first_token = blockIdx.y * kSmallGemmTokens;
  const int n_token_tiles = (min(kSmallGemmTokens, p.n_tokens - first_token) + 7) / 8;
  const int weight_bytes = small_gemm_weight_bytes(kUnitBytes, n_row_warps);
  const int slot_bytes = small_gemm_slot_bytes(kUnitBytes, n_row_warps, n_token_tiles);
  const int n_units = quant::units_of(p.n_cols);
  const ItemLine line{static_cast<int64_t>(p.n_tiles) * n_units};
  const int begin = line.begin(blockIdx.x), end = line.begin(blockIdx.x + 1);
  const uint32_t ring = shared_address(shared);

  // Weights come early: they depend on no kernel before this one.
  int next_tile = begin / n_units, next_k = begin % n_units;  // of the item to copy
  const auto copy_next_tile = [&](int slot) {
    copy_tile<T>(p, ring + slot * slot_bytes, next_tile, next_k);
    if (++next_k == n_units) {
      next_k = 0;
      ++next_tile;
    }
  };
#pragma unroll 1
  for (int slot = 0; slot < p.n_slots - 1 && begin + slot < end; ++slot) {
    copy_next_tile(slot);
  }
  grid_dependency_wait();
  grid_dependency_launch();
#pragma unroll 1
  for (int slot = 0; slot < p.n_slots - 1; ++slot) {
    if (begin + slot < end) {
      copy_tokens(p, ring + slot * slot_bytes + weight_bytes, first_token, n_token_tiles,
                  (begin + slot) % n_units);
    }
    copy_group_end();
  }

  float sums[2][kMostTiles][4] = {};
  int tile = begin / n_units, k = begin % n_units, slot = 0;
  float up = power_to_f16(*part_of(p, tile).largest).up;
  for (int item = begin; item < end; ++item) {
    if (p.n_slots == 2) {
      copy_groups_wait<0>();
    } else if (p.n_slots == 3) {
      copy_groups_wait<1>();
    } else {
      copy_groups_wait<2>();
    }
    __syncthreads();  // the item has arrived for all, and all are done with the one before
    if (item + p.n_slots - 1 < end) {
      const int free_slot = slot == 0 ? p.n_slots - 1 : slot - 1;
      copy_tokens(p, ring + free_slot * slot_bytes + weight_bytes, first_token, n_token_tiles,
                  next_k);
      copy_next_tile(free_slot);
    }
    copy_group_end();
    uint8_t* const in_slot = shared + slot * slot_bytes;
    const uint8_t* x_rows = in_slot + weight_bytes + lane / 4 * kSmallGemmXBytes + lane % 4 * 8;
#pragma unroll 1
    for (int step = 0; step < steps_of_warp; ++step) {
      // What the mask adds is what the compiler then knows of the columns.
      const int col =
          (col_warp * steps_of_warp + step) * kStepCols<kOutside> & (quant::kUnitCols - 1);
      multiply_step<T, kOutside>(in_slot + row_warp * 2 * kUnitBytes, x_rows, col, n_token_tiles,
                                 up, sums);
    }
    slot = slot + 1 == p.n_slots ? 0 : slot + 1;
    if (++k < n_units && item + 1 < end) {
      continue;
    }

    // The tile's end, or the block's: the sums of the warps with other columns, in their order,
    // through the x of this item, which holds those of 16 rows by the block's tokens for 8 warps.
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

    const SmallGemmPart& part = part_of(p, tile);
    const int first_row = (tile - part.first_tile) * n_row_warps * 32 + row_warp * 32;
    const float scale = kOutside ? up : 1.0f;
    const int first_item = tile * n_units, last_item = first_item + n_units - 1;
    const int first_block = line.block_of(first_item), last_block = line.block_of(last_item);
    const auto partials_of = [&](int block) {
      // A block has a piece of the tile that it begins in and of the one that it ends in.
      const int which = line.begin(block) >= first_item ? 0 : 1;
      const int64_t idx = 2 * (static_cast<int64_t>(blockIdx.y) * gridDim.x + block) + which;
      return p.partials + idx * kPartialElems + row_warp * 2 * n_token_tiles * 4 * kWarpSize + lane;
    };
    if (first_block == last_block) {
      if (col_warp == 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int tokens = 0; tokens < kMostTiles; ++tokens) {
            if (tokens < n_token_tiles) {
              store_products(p, part, first_row + 16 * half, first_token + 8 * tokens, scale,
                             sums[half][tokens]);
            }
          }
        }
      }
    } else {
      if (col_warp == 0) {
        float* to = partials_of(blockIdx.x);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int tokens = 0; tokens < kMostTiles; ++tokens) {
            if (tokens < n_token_tiles) {
#pragma unroll
              for (int elem = 0; elem < 4; ++elem) {
                to[((half * n_token_tiles + tokens) * 4 + elem) * kWarpSize] =
                    sums[half][tokens][elem];
              }
            }
          }
        }
        __threadfence();
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        uint32_t* arrived = p.arrived + blockIdx.y * p.n_tiles + tile;
        is_last = atomicAdd(arrived, 1u) == static_cast<uint32_t>(last_block - first_block);
        if (is_last) {
          *arrived = 0;
          __threadfence();
        }
      }
      __syncthreads();
      if (is_last) {
#pragma unroll 1
        for (int place = col_warp; place < 2 * n_token_tiles; place += n_col_warps) {
          float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
          for (int block = first_block; block <= last_block; ++block) {
            const float* from = partials_of(block) + place * 4 * kWarpSize;
#pragma unroll
            for (int elem = 0; elem < 4; ++elem) {
              total[elem] += __ldcg(from + elem * kWarpSize);
            }
          }
          store_products(p, part, first_row + place / n_token_tiles * 16,
                         first_token + place % n_token_tiles * 8, scale, total);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int tokens = 0; tokens < kMostTiles; ++tokens) {
#pragma unroll
        for (int elem = 0; elem < 4; ++elem) {
          sums[half][tokens][elem] = 0.0f;
        }
      }
    }
    if (k == n_units) {
      k = 0;
      ++tile;
      if (item + 1 < end) {
        up = power_to_f16(*part_of(p, tile).largest).up;
      }
    }
  }
}

}  // namespace apr
