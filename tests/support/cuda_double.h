// A test double of the table of CUDA calls: every call is traced, any one may be made to fail, and
// what was created and not destroyed is known.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda/api.h"

namespace apr::test {

class CudaDouble {
 public:
  // In force until its end; one at a time. Over `base` (the system's table, on a machine with a
  // GPU), or over fakes that hand out made-up handles.
  explicit CudaDouble(const cuda::Api* base = nullptr);
  ~CudaDouble();
  CudaDouble(const CudaDouble&) = delete;
  CudaDouble& operator=(const CudaDouble&) = delete;

  // The n-th call from now on fails, 0 being the next. One that destroys does its work and then
  // answers a failure; those that describe errors are not counted.
  void fail_call(int n);
  std::string failed_call() const;  // the name of the one that failed; empty: none was reached

  void lose_library(cuda::Library library);

  std::vector<std::string> trace() const;  // names, in order
  int count(const std::string& name) const;

  // Fakes only: kinds of what was created and not destroyed; what was destroyed without being
  // alive.
  std::multiset<std::string> alive() const;
  std::vector<std::string> violations() const;

  // What the fakes say of the machine.
  int n_devices = 1;
  int cc_major = 9, cc_minor = 0;
  int driver_version = 13000;
  cudaError_t count_status = cudaSuccess;  // of cudaGetDeviceCount
  int compute_mode = cudaComputeModeDefault;
  size_t free_bytes = size_t{1} << 36;
  nvrtcResult compile_status = NVRTC_SUCCESS;
  std::string compile_log = "a log";
  int nvrtc_minor = 0;

  // For the wrappers and fakes behind the table.
  static CudaDouble& current();
  bool enter(const char* name);  // answers whether this call is to fail
  void* create(const std::string& kind);
  void adopt(const std::string& kind, void* handle);  // a handle with something behind it
  void destroy(const std::string& kind, const void* handle);
  const cuda::LibraryFacts& library(cuda::Library library) { return facts_.at(library); }

 private:
  mutable std::mutex mutex_;
  int countdown_ = -1;
  std::string failed_call_;
  std::vector<std::string> trace_, violations_;
  std::map<const void*, std::string> alive_;
  std::map<cuda::Library, cuda::LibraryFacts> facts_;
  cuda::Api table_{};
  std::unique_ptr<cuda::ScopedApi> scope_;
};

// A table of fakes: each call succeeds, those that create and destroy report to the double. Pinned
// memory is real and zero; device memory is addresses alone.
cuda::Api fake_api();

}  // namespace apr::test
