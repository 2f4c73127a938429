// Over kernels/async_copy.cuh: a copy is done when it is started.
#pragma once

#include "platform.cuh"

namespace apr {

inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const std::byte*>(shared) -
                               simt::machine().dynamic_shared);
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
