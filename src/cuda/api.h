// The one table through which all of CUDA is called: runtime, driver, cuBLAS, cuBLASLt and NVRTC.
// Tests put a table of their own in its place, that fails or traces each call.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "cuda/library_search.h"

namespace apr::cuda {

enum class Library { kRuntime, kDriver, kCublas, kCublasLt, kNvrtc };

const char* library_name(Library library);  // for people: "cuBLAS"

// Whether a library's rows of the table can be called, and how that was found out.
struct LibraryFacts {
  bool loaded = false;
  std::string path = {};    // the file; "linked statically" for the runtime; empty where not loaded
  std::string reason = {};  // why not loaded
  std::vector<LibraryAttempt> attempts = {};
};

// Rows keep NVIDIA's names. A row whose library is not loaded answers with that library's "not
// initialised" status.
struct Api {
#define APR_API(library, name) decltype(&::name) name;
#include "cuda/api_functions.inc"
#undef APR_API
  // Loads a library at its first call, in any thread, and says how that went. Its rows may be
  // called afterwards. What needs a library asks here first; owners of its handles do.
  const LibraryFacts& (*library)(Library);
};

// The table in force: the system's, which is filled at the first call, or that of a ScopedApi.
const Api& api();

// Throws kBackendUnavailable, saying what was tried, unless `library` is loaded.
void require_library(Library library);

// The pip line that brings NVRTC and cuBLAS to where the search finds them: beside the program.
std::string library_remedy();

// Puts `table` in force until the end of its scope. For tests; not while other threads call api().
class ScopedApi {
 public:
  explicit ScopedApi(const Api& table);
  ~ScopedApi();
  ScopedApi(const ScopedApi&) = delete;
  ScopedApi& operator=(const ScopedApi&) = delete;

 private:
  const Api* previous_;
};

}  // namespace apr::cuda
