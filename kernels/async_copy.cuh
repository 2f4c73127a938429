// Copies from global to shared memory that run while a thread computes (sm_80 and later).
#pragma once

#include "platform.cuh"

namespace apr {

// The address of shared memory in its own space.
__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Starts copying kBytes (4, 8 or 16; both ends aligned to it).
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t to_shared, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "what the hardware copies at once");
  if constexpr (kBytes == 16) {  // .cg: past the L1 cache
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to_shared), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to_shared), "l"(from),
                 "n"(kBytes)
                 : "memory");
  }
}

// As copy_async<16>; where `valid` is false, writes zeros and reads nothing.
__device__ __forceinline__ void copy_async_or_zero(uint32_t to_shared, const void* from,
                                                   bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}

// Closes a group: the copies this thread has started since the last group.
__device__ __forceinline__ void copy_group_end() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Returns once all but the last kPending groups of this thread have arrived; other threads see them
// after a barrier.
template <int kPending>
__device__ __forceinline__ void copy_groups_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Starts copying kBytes (a multiple of 16; both ends aligned to 16) by the lanes of one warp.
template <int kBytes>
__device__ __forceinline__ void copy_async_by_warp(uint32_t to_shared, const uint8_t* from,
                                                   int lane) {
  static_assert(kBytes % 16 == 0, "in pieces of 16");
#pragma unroll
  for (int first = 0; first < kBytes; first += 32 * 16) {
    if (first + 32 * 16 <= kBytes || first + 16 * lane < kBytes) {
      copy_async<16>(to_shared + first + 16 * lane, from + first + 16 * lane);
    }
  }
}

}  // namespace apr
