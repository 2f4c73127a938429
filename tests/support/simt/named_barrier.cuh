// Over kernels/named_barrier.cuh.
#pragma once

#include "platform.cuh"

namespace apr {

inline void named_barrier(int id, int n_threads) {
  simt::Machine& m = simt::machine();
  const uint64_t barrier = m.n_named_barriers[id];
  if (++m.n_at_named_barrier[id] == n_threads) {
    m.n_at_named_barrier[id] = 0;
    ++m.n_named_barriers[id];
    return;
  }
  while (m.n_named_barriers[id] == barrier) {
    simt::yield();
  }
}

}  // namespace apr
