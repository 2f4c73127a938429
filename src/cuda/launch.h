// Launching one kernel, and the shape of a launch.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/kernel_library.h"

namespace apr::cuda {

struct LaunchConfig {
  uint32_t grid_x = 1, grid_y = 1, grid_z = 1;  // blocks
  uint32_t block_x = 1;                         // threads
  uint32_t shared_bytes = 0;                    // dynamic
  // May start before its predecessor ends, see kernels/grid_dependency.cuh; without effect where
  // the device cannot.
  bool overlap = false;

  bool operator==(const LaunchConfig&) const = default;
};

// Launches the kernel of row `name`, whose one argument lies at `params`. Throws
// kBackendUnavailable.
void launch_kernel(const KernelLibrary& kernels, std::string_view name, const LaunchConfig& config,
                   const Stream& stream, const void* params);

// As above; `params` is copied before this returns.
template <class Params>
void launch(const KernelLibrary& kernels, std::string_view name, const LaunchConfig& config,
            const Stream& stream, const Params& params) {
  launch_kernel(kernels, name, config, stream, &params);
}

}  // namespace apr::cuda
