#include "cuda/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "apr/error.h"

namespace apr::cuda {
namespace {

// What a row answers before its library is loaded.
template <class Status>
constexpr Status kAbsent = {};
template <>
constexpr cudaError_t kAbsent<cudaError_t> = cudaErrorInitializationError;
template <>
constexpr CUresult kAbsent<CUresult> = CUDA_ERROR_NOT_INITIALIZED;
template <>
constexpr cublasStatus_t kAbsent<cublasStatus_t> = CUBLAS_STATUS_NOT_INITIALIZED;
template <>
constexpr nvrtcResult kAbsent<nvrtcResult> = NVRTC_ERROR_INTERNAL_ERROR;
template <>
constexpr const char* kAbsent<const char*> = "its library is not loaded";

template <class Function>
struct Absent;
template <class Result, class... Args>
struct Absent<Result (*)(Args...)> {
  static Result call(Args...) { return kAbsent<Result>; }
};

#define APR_STRING_(name) #name
#define APR_STRING(name) APR_STRING_(name)

// Sets the rows of `library` to resolve(name, exported name), the latter with the version suffix
// that NVIDIA's headers give it ("cublasCreate_v2"). Without an address for each of them sets none
// and answers the missing one's name. Rows of other libraries may be in use meanwhile.
template <class Resolve>
std::string fill(Api& table, Library library, const Resolve& resolve) {
  Api found{};
#define APR_API(row_library, name)                                      \
  if (library == Library::row_library) {                                \
    found.name = reinterpret_cast<decltype(&::name)>(                   \
        reinterpret_cast<uintptr_t>(resolve(#name, APR_STRING(name)))); \
    if (found.name == nullptr) {                                        \
      return APR_STRING(name);                                          \
    }                                                                   \
  }
#include "cuda/api_functions.inc"
#undef APR_API
#define APR_API(row_library, name)       \
  if (library == Library::row_library) { \
    table.name = found.name;             \
  }
#include "cuda/api_functions.inc"
#undef APR_API
  return {};
}

// The major version whose headers we were built with first: its functions are those declared.
std::vector<std::string> versioned(const std::string& stem) {
  constexpr int kBuiltMajor = CUDART_VERSION / 1000;
  std::vector<std::string> names{stem + std::to_string(kBuiltMajor)};
  for (const int major : {13, 12}) {
    if (major != kBuiltMajor) {
      names.push_back(stem + std::to_string(major));
    }
  }
  return names;
}

class SystemApi {
 public:
  static SystemApi& instance() {
    static SystemApi system;
    return system;
  }

  const Api& table() const { return table_; }

 private:
  static constexpr int kLibraries = 5;

  SystemApi() {
#define APR_API(library, name)                           \
  if constexpr (Library::library == Library::kRuntime) { \
    table_.name = &::name;                               \
  } else {                                               \
    table_.name = &Absent<decltype(&::name)>::call;      \
  }
#include "cuda/api_functions.inc"
#undef APR_API
    table_.library = [](Library library) -> const LibraryFacts& {
      return instance().load(library);
    };
  }

  const LibraryFacts& load(Library library) {
    const size_t slot = static_cast<size_t>(library);
    std::call_once(once_[slot], [&] {
      switch (library) {
        case Library::kRuntime:
          facts_[slot].loaded = true;
          facts_[slot].path = "linked statically";
          break;
        case Library::kDriver:
          load_driver(facts_[slot]);
          break;
        case Library::kCublasLt:
          load_shared(library, "libcublasLt.so.");
          break;
        case Library::kCublas:
          load(Library::kCublasLt);  // which it needs, and would look for in fewer places
          load_shared(library, "libcublas.so.");
          break;
        case Library::kNvrtc:
          load_shared(library, "libnvrtc.so.");
          open_companions(facts_[slot].path, "libnvrtc-builtins.so");
          break;
      }
    });
    return facts_[slot];
  }

  // The runtime opens the driver itself; opening it here first says why it cannot be.
  void load_driver(LibraryFacts& facts) {
    const OpenedLibrary opened = open_library({"libcuda.so.1"}, {});
    facts.attempts = opened.attempts;
    if (opened.handle == nullptr) {
      facts.reason = opened.attempts.back().error;
      return;
    }
    cudaError_t status = cudaSuccess;
    const std::string missing =
        fill(table_, Library::kDriver, [&status](const char* name, const char*) {
          // The version in which the newest of the declared signatures came.
          constexpr unsigned kSignatures = 12000;
          void* address = nullptr;
          cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
          status = ::cudaGetDriverEntryPointByVersion(name, &address, kSignatures,
                                                      cudaEnableDefault, &result);
#else
          static_cast<void>(kSignatures);
          status = ::cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result);
#endif
          return status == cudaSuccess ? address : nullptr;
        });
    finish(facts, opened.path, missing);
    if (status != cudaSuccess) {
      facts.reason = fmt::format("{} ({}): {}", ::cudaGetErrorName(status),
                                 static_cast<int>(status), ::cudaGetErrorString(status));
    }
  }

  void load_shared(Library library, const std::string& stem) {
    LibraryFacts& facts = facts_[static_cast<size_t>(library)];
    const std::vector<std::string> names = versioned(stem);
    const OpenedLibrary opened = open_library(names, library_dirs(SearchRoots::from_environment()));
    facts.attempts = opened.attempts;
    if (opened.handle == nullptr) {
      facts.reason = fmt::format(
          "no {} in the loader's path, a toolkit under /usr/local or the "
          "nvidia wheels of a Python",
          names.front());
      return;
    }
    finish(facts, opened.path, fill(table_, library, [&opened](const char*, const char* exported) {
             return ::dlsym(opened.handle, exported);
           }));
  }

  static void finish(LibraryFacts& facts, const std::string& path, const std::string& missing) {
    facts.loaded = missing.empty();
    facts.path = path;
    if (!missing.empty()) {
      facts.reason = fmt::format("{} has no function {}: too old", path, missing);
    }
  }

  Api table_{};
  std::array<std::once_flag, kLibraries> once_;
  std::array<LibraryFacts, kLibraries> facts_;
};

std::atomic<const Api*> scoped_table{nullptr};

}  // namespace

const char* library_name(Library library) {
  constexpr std::array kNames{"CUDA runtime", "NVIDIA driver", "cuBLAS", "cuBLASLt", "NVRTC"};
  return kNames[static_cast<size_t>(library)];
}

const Api& api() {
  const Api* table = scoped_table.load(std::memory_order_acquire);
  return table != nullptr ? *table : SystemApi::instance().table();
}

void require_library(Library library) {
  const LibraryFacts& facts = api().library(library);
  if (!facts.loaded) {
    throw Error(ErrorCode::kBackendUnavailable,
                fmt::format("{} cannot be used: {}; {}", library_name(library), facts.reason,
                            library_remedy()));
  }
}

std::string library_remedy() {
  const bool cuda13 = CUDART_VERSION >= 13000;
  return fmt::format("python3 -m pip install --no-deps --target {}/cuda-headers {}",
                     SearchRoots::from_environment().program_dir.string(),
                     cuda13 ? "nvidia-cublas==13.0.2.14 nvidia-cuda-nvrtc==13.0.88"
                            : "nvidia-cublas-cu12 nvidia-cuda-nvrtc-cu12");
}

ScopedApi::ScopedApi(const Api& table)
    : previous_(scoped_table.exchange(&table, std::memory_order_acq_rel)) {}

ScopedApi::~ScopedApi() {
  scoped_table.store(previous_, std::memory_order_release);
}

}  // namespace apr::cuda
