// Over kernels/async_copy.cuh: a copy is done when it is started.
#pragma once

#include "platform.cuh"

namespace apr {

inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const std::byte*>(shared) -
                               simt::machine().dynamic_shared);
}

template <int kBytes>
void copy_async(uint32_t to_shared, const void* from) {
  if (to_shared % kBytes != 0 || reinterpret_cast<uintptr_t>(from) % kBytes != 0) {
    std::abort();  // the hardware faults
  }
  std::memcpy(simt::machine().dynamic_shared + to_shared, from, kBytes);
}

template <int kBytes>
void copy_async_by_warp(uint32_t to_shared, const uint8_t* from, int lane) {
  for (int first = 16 * lane; first < kBytes; first += 32 * 16) {
    copy_async<16>(to_shared + first, from + first);
  }
}

inline void copy_async_or_zero(uint32_t to_shared, const void* from, bool valid) {
  std::byte* to = simt::machine().dynamic_shared + to_shared;
  if (valid) {
    std::memcpy(to, from, 16);
  } else {
    std::memset(to, 0, 16);
  }
}

inline void copy_group_end() {}
template <int kPending>
void copy_groups_wait() {}

}  // namespace apr
