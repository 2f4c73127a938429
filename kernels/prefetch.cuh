// Memory that will be read soon, brought near.
#pragma once

#include "platform.cuh"

namespace apr {

constexpr int kLineBytes = 128;

// Brings the line at `address` into L2, without waiting.
__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace apr
