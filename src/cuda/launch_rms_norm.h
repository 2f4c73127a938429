// kernels/rms_norm.cu: which of its kernels, and how it is launched.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/kernel_library.h"
#include "cuda/launch.h"
#include "params.h"

namespace apr::cuda {

struct RmsNormLaunch {
  std::string_view kernel;  // row of the kernel table
  LaunchConfig config;
};

// Pure. n_rows >= 1, dim >= 1.
RmsNormLaunch config_for(const RmsNormParams& params, int64_t n_rows);

// y [n_rows, dim] = RMSNorm of x [n_rows, dim], on `stream`; contract: bounded, see the op's test.
void launch_rms_norm(const KernelLibrary& kernels, const Stream& stream,
                     const RmsNormParams& params, int64_t n_rows);

}  // namespace apr::cuda
