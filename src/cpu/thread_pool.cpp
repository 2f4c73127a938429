#include "cpu/thread_pool.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "apr/error.h"
#include "cpu/core_quota.h"

namespace apr::cpu {
namespace {

// How long a thread looks at a word before it sleeps: longer than the gap between two ops of a
// forward pass, far shorter than a time slice, so that a spinning thread cannot starve a neighbour.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kPausesPerClockRead = 32;

// The index half of a claim word while no task may be claimed.
constexpr uint64_t kClosed = 0xffffffffu;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A 32-bit word that threads wait on: spins, then sleeps in the kernel.
class Signal {
 public:
  uint32_t load() const { return word_.load(std::memory_order_acquire); }

  void store(uint32_t value) { word_.store(value, std::memory_order_seq_cst); }
  uint32_t add(uint32_t n) { return word_.fetch_add(n, std::memory_order_seq_cst) + n; }

  // Wakes up to n_threads sleepers. The word was changed before: a thread that is about to sleep
  // either counts in sleepers_ already or sees the new value in the kernel's own check.
  void wake(int n_threads) {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, n_threads, nullptr, nullptr, 0);
    }
  }

  // Returns once `done(word)` holds; spins at most `spin` before it sleeps.
  template <class Done>
  void wait(Done done, std::chrono::nanoseconds spin) {
    if (spin.count() > 0) {
      const auto deadline = std::chrono::steady_clock::now() + spin;
      do {
        for (int i = 0; i < kPausesPerClockRead; ++i) {
          if (done(load())) {
            return;
          }
          pause_cpu();
        }
      } while (std::chrono::steady_clock::now() < deadline);
    }
    for (uint32_t seen = load(); !done(seen); seen = load()) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace

// A job is claimed task by task through one word, {epoch : 32, next task : 32}. A claim is a
// compare-and-swap, so a thread that wakes late can neither take a task of a later job by mistake
// nor delay a job: the caller waits for tasks that others have begun, never for threads.
struct ThreadPool::Impl {
  alignas(64) std::atomic<uint64_t> claim{kClosed};
  std::atomic<const TaskRef*> task{nullptr};
  std::atomic<uint32_t> n_tasks{0};
  alignas(64) Signal epoch;   // counts jobs; workers wait for it to change
  alignas(64) Signal n_done;  // finished tasks of the job
  std::atomic<bool> stopping{false};
  std::chrono::nanoseconds spin{};
  std::vector<std::thread> workers;

  // Runs tasks of the job until none is left to claim.
  void work() {
    uint64_t seen = claim.load(std::memory_order_acquire);
    for (;;) {
      const uint64_t next = seen & 0xffffffffu;
      // Fields of a later job are written only while the word is closed: the swap below fails then.
      const uint32_t total = n_tasks.load(std::memory_order_acquire);
      const TaskRef* current = task.load(std::memory_order_acquire);
      if (next >= total) {
        return;
      }
      if (!claim.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        continue;
      }
      (*current)(static_cast<int64_t>(next));
      if (n_done.add(1) == total) {
        n_done.wake(1);
      }
      seen = claim.load(std::memory_order_acquire);
    }
  }

  void worker_main() {
    uint32_t seen = 0;
    for (;;) {
      epoch.wait([seen](uint32_t now) { return now != seen; }, spin);
      seen = epoch.load();
      if (stopping.load(std::memory_order_acquire)) {
        return;
      }
      work();
    }
  }

  void stop() {
    stopping.store(true, std::memory_order_release);
    epoch.add(1);
    epoch.wake(INT_MAX);
    for (std::thread& worker : workers) {
      worker.join();
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : impl_(std::make_unique<Impl>()) {
  APR_CHECK(n_threads >= 1, "a pool has at least the caller's thread");
  // Where threads outnumber cores, a spinning one keeps a working one off its core.
  impl_->spin = n_threads <= available_cores() ? kSpin : std::chrono::nanoseconds{0};
  try {
    for (int i = 1; i < n_threads; ++i) {
      impl_->workers.emplace_back([impl = impl_.get()] { impl->worker_main(); });
    }
  } catch (const std::system_error& e) {
    impl_->stop();
    throw Error(ErrorCode::kGeneric,
                fmt::format("cannot start {} CPU threads: {}; use fewer", n_threads, e.what()));
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop();
}

int ThreadPool::n_threads() const {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run(int64_t n_tasks, TaskRef task) {
  APR_CHECK(n_tasks >= 0 && n_tasks < static_cast<int64_t>(kClosed), "task count of a job");
  if (n_tasks <= 1 || impl_->workers.empty()) {
    for (int64_t task_idx = 0; task_idx < n_tasks; ++task_idx) {
      task(task_idx);
    }
    return;
  }
  const uint32_t total = static_cast<uint32_t>(n_tasks);
  const uint64_t next_epoch = (impl_->epoch.load() + 1) & 0xffffffffu;
  impl_->claim.store(next_epoch << 32 | kClosed, std::memory_order_seq_cst);
  impl_->n_done.store(0);
  impl_->task.store(&task, std::memory_order_release);
  impl_->n_tasks.store(total, std::memory_order_release);
  impl_->claim.store(next_epoch << 32, std::memory_order_release);
  impl_->epoch.add(1);
  impl_->epoch.wake(static_cast<int>(std::min<int64_t>(n_tasks - 1, INT_MAX)));
  impl_->work();
  impl_->n_done.wait([total](uint32_t n) { return n == total; }, impl_->spin);
}

int available_cores() {
  int n_cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cpu_set_t affinity;
  if (sched_getaffinity(0, sizeof affinity, &affinity) == 0) {
    n_cores = std::max(1, CPU_COUNT(&affinity));
  }
  const std::optional<int> quota = cgroup_core_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota ? std::min(n_cores, *quota) : n_cores;
}

}  // namespace apr::cpu
