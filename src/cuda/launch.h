// Launching one kernel, and the shape of a launch.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/kernel_library.h"

namespace apr::cuda {

inline int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

// Blocks that hold n_elems, per_block each: an axis of a grid.
inline uint32_t blocks_for(int64_t n_elems, int64_t per_block) {
  return static_cast<uint32_t>(divide_up(n_elems, per_block));
}

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
