// Splitting of a range over the pool.
#pragma once

#include "cpu/fast/isa/simd.h"
#include "cpu/thread_pool.h"

namespace apr::cpu::fast::APR_CPU_ISA {

// Elements below which a job costs less than handing it to other threads.
constexpr int64_t kMinParallelElems = 8192;

// Calls f(begin, end) over parts of [0, n_items), each of about kMinParallelElems elements or more.
template <class Fn>
APR_ALWAYS_INLINE void parallel_ranges(ThreadPool& pool, int64_t n_items, int64_t elems_per_item,
                                       Fn f) {
  const int64_t wanted = n_items * elems_per_item / kMinParallelElems;
  const int64_t most = 4 * pool.n_threads();
  const int64_t n_parts = wanted < 1 ? 1 : wanted < most ? wanted : most;
  const int64_t part_items = (n_items + n_parts - 1) / n_parts;
  const auto task = [&](int64_t part) {
    const int64_t begin = part * part_items;
    const int64_t end = begin + part_items < n_items ? begin + part_items : n_items;
    if (begin < end) {
      f(begin, end);
    }
  };
  pool.run(n_parts, task);
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
