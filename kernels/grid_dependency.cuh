// Programmatic dependent launch: a kernel may start before its predecessor in the stream has ended.
// Until grid_dependency_wait() it reads only what no kernel of the chain writes (weights); every
// block calls it before it ends, for what follows relies on it. Without the launch attribute, and
// before sm_90, both do nothing.
#pragma once

#include "platform.cuh"

namespace apr {

// Returns once the predecessor has ended and its writes are visible.
__device__ inline void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the successor start once every block has called it or has ended.
__device__ inline void grid_dependency_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace apr
