// Computes  pairs = the (token, slot) pairs by expert, those of an expert in their order; tiles =
//           pieces of at most tile_pairs of one expert's pairs
// Reads     ids [n_pairs]      Writes  pairs [n_pairs], first [n_experts + 1], tiles, n_tiles
// How       a block counts the pairs of experts before its own, which is where its own start; the
//           last block makes the tiles
// Grid      n_experts   Block  256   Shared  132 bytes, static
// Assumes   every id in [0, n_experts); arrived zero; fewer than 2^31 pairs
// Moves     n_experts * n_pairs * 8 + n_pairs * 4 bytes, from cache
// Determinism  gpu_to_gpu   Reference  bitwise: a stable sort
#include "grid_dependency.cuh"
#include "moe_params.h"
#include "reduce.cuh"

namespace apr {

// The sum of `value` over the threads before this one; `total` of all. Ends with a barrier.
// `scratch`: [kMaxWarps] shared.
__device__ inline int sum_before(int value, int* scratch, int& total) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int n_warps = blockDim.x / kWarpSize;
  int sum = value;  // up to this lane
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, sum, distance);
    sum += lane >= distance ? below : 0;
  }
  if (lane == kWarpSize - 1) {
    scratch[warp] = sum;
  }
  __syncthreads();
  int before = 0;
  total = 0;
  for (int other = 0; other < n_warps; ++other) {
    before += other < warp ? scratch[other] : 0;
    total += scratch[other];
  }
  __syncthreads();
  return before + sum - value;
}

// Threads take neighbouring experts.
__device__ inline void make_tiles(const MoeGroupParams& p, int* scratch) {
  const int share = (p.n_experts + blockDim.x - 1) / blockDim.x;
  const int begin = min(static_cast<int>(threadIdx.x) * share, p.n_experts);
  const int end = min(begin + share, p.n_experts);
  const auto first_of = [&](int expert) {
    return expert == p.n_experts ? p.n_pairs : __ldcg(p.to.first + expert);
  };
  int n_mine = 0;
  for (int expert = begin; expert < end; ++expert) {
    n_mine += (first_of(expert + 1) - first_of(expert) + p.tile_pairs - 1) / p.tile_pairs;
  }
  int n_tiles = 0;
  int tile = sum_before(n_mine, scratch, n_tiles);
  for (int expert = begin; expert < end; ++expert) {
    const int last = first_of(expert + 1);
    for (int first = first_of(expert); first < last; first += p.tile_pairs) {
      p.to.tiles[tile++] = {expert, first, min(p.tile_pairs, last - first)};
    }
  }
  if (threadIdx.x == 0) {
    *p.to.n_tiles = n_tiles;
    p.to.first[p.n_experts] = p.n_pairs;
  }
}

__global__ void moe_group(const __grid_constant__ MoeGroupParams p) {
  __shared__ int scratch[kMaxWarps];
  __shared__ bool is_last;
  const int expert = blockIdx.x;
  const int share = (p.n_pairs + blockDim.x - 1) / blockDim.x;  // neighbouring pairs of a thread
  const int begin = min(static_cast<int>(threadIdx.x) * share, p.n_pairs);
  const int end = min(begin + share, p.n_pairs);
  grid_dependency_wait();
  grid_dependency_launch();
  int n_less = 0, n_equal = 0;
#pragma unroll 8
  for (int pair = begin; pair < end; ++pair) {
    const int id = p.ids[pair];
    n_less += id < expert ? 1 : 0;
    n_equal += id == expert ? 1 : 0;
  }
  int first = 0, n_pairs = 0;
  sum_before(n_less, scratch, first);
  int place = first + sum_before(n_equal, scratch, n_pairs);
  if (n_equal > 0) {
    for (int pair = begin; pair < end; ++pair) {
      if (p.ids[pair] == expert) {
        p.to.pairs[place++] = pair;
      }
    }
  }
  if (threadIdx.x == 0) {
    p.to.first[expert] = first;
    __threadfence();
    is_last = atomicAdd(p.arrived, 1u) == gridDim.x - 1;
    if (is_last) {
      *p.arrived = 0;
      __threadfence();
    }
  }
  __syncthreads();
  if (is_last) {
    make_tiles(p, scratch);
  }
}

}  // namespace apr
