// Tests that need a GPU with E4M3 products.
#pragma once

#include "cuda/device.h"
#include "support/gpu.h"

namespace apr::cuda {

inline bool has_e4m3() {
  const DeviceFacts device = use_device(0);
  return device.cc_major * 10 + device.cc_minor >= 89;
}

#define APR_NEED_E4M3()                                                                   \
  APR_NEED_GPU();                                                                         \
  if (!has_e4m3()) {                                                                      \
    GTEST_SKIP() << "SKIPPED: this GPU is older than compute capability 8.9, no FP8 ran"; \
  }

}  // namespace apr::cuda
