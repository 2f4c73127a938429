// The blocks of sample_block.cuh on the device.
#pragma once

#include "grid_dependency.cuh"
#include "sample_block.cuh"

namespace apr {

struct DeviceBlock {
  __device__ int idx() const { return static_cast<int>(blockIdx.x); }
  __device__ int n_blocks() const { return static_cast<int>(gridDim.x); }

  template <class Phase>
  __device__ __forceinline__ void each(const Phase& phase) const {
    phase(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  template <class Amount>
  __device__ __forceinline__ void add(Amount* to, Amount amount) const {
    atomicAdd(to, amount);
  }

  __device__ __forceinline__ bool is_last(uint32_t* arrived) const {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      last = atomicAdd(arrived, 1u) == gridDim.x - 1;
      if (last) {
        *arrived = 0;
      }
    }
    __syncthreads();
    __threadfence();
    return last;
  }
};

}  // namespace apr
