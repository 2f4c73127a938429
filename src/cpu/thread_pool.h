// The threads of the CPU kernels: the caller works too; between jobs the others spin briefly, then
// sleep, so that a busy neighbour does not stall a job.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace apr::cpu {

// A reference to a callable void(int64_t task_idx); valid while the callable is.
class TaskRef {
 public:
  template <class F>
  TaskRef(const F& task)  // NOLINT: implicit on purpose
      : object_(&task), call_([](const void* object, int64_t task_idx) {
          (*static_cast<const F*>(object))(task_idx);
        }) {}
  void operator()(int64_t task_idx) const { call_(object_, task_idx); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t);
};

class ThreadPool {
 public:
  // n_threads >= 1, the caller's included. Throws kGeneric when threads cannot be started.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const;

  // Runs task(0..n_tasks-1), each once, on any thread in any order, and returns when all are done.
  // Not reentrant; tasks must not throw. Writes of tasks are visible to the caller afterwards.
  void run(int64_t n_tasks, TaskRef task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Cores this process may run on (affinity and cgroup quota), at least 1.
int available_cores();

}  // namespace apr::cpu
