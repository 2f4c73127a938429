// Failed calls of CUDA as exceptions: APR_CUDA(api().cudaMalloc(&data, n_bytes)).
#pragma once

#include <string>

#include "cuda/api.h"

// Throws apr::Error when `call`, which returns a status of any of the five libraries, fails: call,
// name, number, text, file and line. The code is always kBackendUnavailable ("could not be used"):
// a wrong value is kInference, a device that refuses a call is this.
#define APR_CUDA(call) ::apr::cuda::check((call), #call, __FILE__, __LINE__)

// For destructors: logs what APR_CUDA would throw. Never throws.
#define APR_CUDA_LOG(call) ::apr::cuda::log_failure((call), #call, __FILE__, __LINE__)

namespace apr::cuda {

// "cudaErrorMemoryAllocation (2): out of memory"
std::string describe(cudaError_t status);
std::string describe(CUresult status);
std::string describe(cublasStatus_t status);
std::string describe(nvrtcResult status);

// "cudaMalloc(&data, n_bytes) failed: cudaError... [src/cuda/handles.cpp:33]"
std::string failure_message(const std::string& description, const char* call, const char* file,
                            int line);

[[noreturn]] void throw_failure(const std::string& description, const char* call, const char* file,
                                int line);
void log_failure_message(const std::string& description, const char* call, const char* file,
                         int line) noexcept;

// All four libraries' success is zero.
template <class Status>
void check(Status status, const char* call, const char* file, int line) {
  if (status != Status{}) {
    throw_failure(describe(status), call, file, line);
  }
}

template <class Status>
void log_failure(Status status, const char* call, const char* file, int line) noexcept {
  if (status != Status{}) {
    try {
      log_failure_message(describe(status), call, file, line);
    } catch (...) {  // no memory for the message
    }
  }
}

}  // namespace apr::cuda
