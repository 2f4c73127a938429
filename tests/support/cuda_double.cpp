#include "support/cuda_double.h"

#include <algorithm>
#include <string_view>

namespace apr::test {
namespace {

CudaDouble* in_force = nullptr;

template <class Status>
constexpr Status kFailure = {};
template <>
constexpr cudaError_t kFailure<cudaError_t> = cudaErrorUnknown;
template <>
constexpr CUresult kFailure<CUresult> = CUDA_ERROR_UNKNOWN;
template <>
constexpr cublasStatus_t kFailure<cublasStatus_t> = CUBLAS_STATUS_INTERNAL_ERROR;
template <>
constexpr nvrtcResult kFailure<nvrtcResult> = NVRTC_ERROR_INTERNAL_ERROR;

enum Row {
#define APR_API(library, name) kRow_##name,
#include "cuda/api_functions.inc"
#undef APR_API
  kRows,
};

constexpr const char* kNames[kRows] = {
#define APR_API(library, name) #name,
#include "cuda/api_functions.inc"
#undef APR_API
};

bool destroys(std::string_view name) {
  for (const char* word : {"Destroy", "Free", "Unload", "Release", "Unmap"}) {
    if (name.find(word) != name.npos) {
      return true;
    }
  }
  return false;
}

bool describes(std::string_view name) {
  return name.find("GetError") != name.npos || name.find("GetStatus") != name.npos;
}

template <int kRow, class Function>
struct Wrapped;
template <int kRow, class Result, class... Args>
struct Wrapped<kRow, Result (*)(Args...)> {
  static inline Result (*inner)(Args...) = nullptr;
  static Result call(Args... args) {
    const bool fails = CudaDouble::current().enter(kNames[kRow]);
    if (fails && !destroys(kNames[kRow])) {
      return kFailure<Result>;
    }
    const Result result = inner(args...);
    return fails ? kFailure<Result> : result;
  }
};

}  // namespace

CudaDouble::CudaDouble(const cuda::Api* base) {
  in_force = this;
  const cuda::Api inner = base == nullptr ? fake_api() : *base;
  for (const cuda::Library library :
       {cuda::Library::kRuntime, cuda::Library::kDriver, cuda::Library::kCublas,
        cuda::Library::kCublasLt, cuda::Library::kNvrtc}) {
    facts_.emplace(library, inner.library(library));
  }
#define APR_API(library, name)                                 \
  Wrapped<kRow_##name, decltype(&::name)>::inner = inner.name; \
  table_.name = &Wrapped<kRow_##name, decltype(&::name)>::call;
#include "cuda/api_functions.inc"
#undef APR_API
  table_.library = [](cuda::Library library) -> const cuda::LibraryFacts& {
    return current().library(library);
  };
  scope_ = std::make_unique<cuda::ScopedApi>(table_);
}

CudaDouble::~CudaDouble() {
  scope_.reset();
  in_force = nullptr;
}

CudaDouble& CudaDouble::current() {
  return *in_force;
}

void CudaDouble::fail_call(int n) {
  const std::lock_guard lock(mutex_);
  countdown_ = n;
  failed_call_.clear();
}

std::string CudaDouble::failed_call() const {
  const std::lock_guard lock(mutex_);
  return failed_call_;
}

void CudaDouble::lose_library(cuda::Library library) {
  facts_.at(library).loaded = false;
  facts_.at(library).reason = "lost by the test";
}

std::vector<std::string> CudaDouble::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

int CudaDouble::count(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count(trace_.begin(), trace_.end(), name));
}

std::multiset<std::string> CudaDouble::alive() const {
  const std::lock_guard lock(mutex_);
  std::multiset<std::string> kinds;
  for (const auto& [handle, kind] : alive_) {
    kinds.insert(kind);
  }
  return kinds;
}

std::vector<std::string> CudaDouble::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

bool CudaDouble::enter(const char* name) {
  const std::lock_guard lock(mutex_);
  if (describes(name)) {
    return false;
  }
  trace_.push_back(name);
  if (countdown_ < 0 || countdown_-- > 0) {
    return false;
  }
  failed_call_ = name;
  return true;
}

// Addresses count up in pages of 2 MiB and are never used again, so that a stale one is seen.
void* CudaDouble::create(const std::string& kind) {
  static uintptr_t next = 0x7000'0000'0000;
  const std::lock_guard lock(mutex_);
  next += 0x200000;
  alive_[reinterpret_cast<void*>(next)] = kind;
  return reinterpret_cast<void*>(next);
}

void CudaDouble::adopt(const std::string& kind, void* handle) {
  const std::lock_guard lock(mutex_);
  alive_[handle] = kind;
}

void CudaDouble::destroy(const std::string& kind, const void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = alive_.find(handle);
  if (found == alive_.end() || found->second != kind) {
    violations_.push_back("destroys a " + kind + " that is not alive");
    return;
  }
  alive_.erase(found);
}

}  // namespace apr::test
