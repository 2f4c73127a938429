#include "cpu/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "cpu/thread_pool.h"

namespace apr::cpu {

double measure_read_bytes_per_s(int n_threads) {
  constexpr int64_t kMostBytes = int64_t{4} << 30, kMostBytesPerThread = int64_t{64} << 20;
  const int64_t words_per_thread = std::min(kMostBytes / n_threads, kMostBytesPerThread) /
                                   static_cast<int64_t>(sizeof(uint64_t));
  constexpr int kPasses = 3;
  ThreadPool pool(n_threads);
  std::vector<uint64_t> words(static_cast<size_t>(words_per_thread * n_threads), 1);
  std::atomic<uint64_t> total{0};
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(n_threads, [&](int64_t thread_idx) {
      uint64_t sum = 0;
      const uint64_t* first = words.data() + thread_idx * words_per_thread;
      for (int64_t word = 0; word < words_per_thread; ++word) {
        sum += first[word];
      }
      total.fetch_add(sum, std::memory_order_relaxed);  // so that the reads are not dropped
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(words.size() * sizeof(uint64_t)) / elapsed.count());
  }
  return total.load() == 0 ? 0.0 : best;
}

}  // namespace apr::cpu
