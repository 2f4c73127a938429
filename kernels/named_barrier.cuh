// A barrier for some warps of a block.
#pragma once

#include "platform.cuh"

namespace apr {

// Returns once n_threads (whole warps) have called with this id, 1 to 15 (0 is __syncthreads').
__device__ __forceinline__ void named_barrier(int id, int n_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

}  // namespace apr
