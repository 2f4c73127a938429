// Tests that need a GPU: a loud skip without one, a failure with APR_REQUIRE_GPU=1.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/error.h"
#include "cuda/handles.h"

namespace apr::test {

// Fills outputs and what is around them: a kernel that leaves one out or writes past the end is
// seen.
inline constexpr float kGuard = -12345.0F;

// Why no GPU can be used; empty where device 0 can, which then is this thread's.
inline std::string missing_gpu() {
  const cuda::Readiness readiness = cuda::check_readiness(0);
  if (!readiness.ready) {
    return readiness.reason + "; " + readiness.remedy;
  }
  cuda::use_device(0);
  return {};
}

inline bool gpu_required() {
  const char* value = std::getenv("APR_REQUIRE_GPU");
  return value != nullptr && std::string(value) != "0" && *value != '\0';
}

template <class T>
cuda::DeviceBuffer to_device(std::span<const T> values) {
  cuda::DeviceBuffer buffer(values.size_bytes(), "a test");
  APR_CUDA(cuda::api().cudaMemcpy(buffer.data(), values.data(), values.size_bytes(),
                                  cudaMemcpyHostToDevice));
  // A copy from pageable memory may still be on its way, and our streams do not wait for it.
  APR_CUDA(cuda::api().cudaDeviceSynchronize());
  return buffer;
}

template <class T>
std::vector<T> to_host(const cuda::DeviceBuffer& buffer) {
  std::vector<T> values(buffer.size_bytes() / sizeof(T));
  APR_CUDA(cuda::api().cudaDeviceSynchronize());
  APR_CUDA(cuda::api().cudaMemcpy(values.data(), buffer.data(), values.size() * sizeof(T),
                                  cudaMemcpyDeviceToHost));
  return values;
}

}  // namespace apr::test

// First line of every such test.
#define APR_NEED_GPU()                                                              \
  do {                                                                              \
    if (const std::string missing = ::apr::test::missing_gpu(); !missing.empty()) { \
      if (::apr::test::gpu_required()) {                                            \
        FAIL() << "APR_REQUIRE_GPU is set, but: " << missing;                       \
      }                                                                             \
      GTEST_SKIP() << "SKIPPED: no GPU test ran: " << missing;                      \
    }                                                                               \
  } while (0)
