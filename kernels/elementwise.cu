// Computes  add: y = a + b; swiglu: y = silu(a) * b; sigmoid_gate: y = a * sigmoid(b)
// Reads     a, b [n_elems] f32      Writes  y [n_elems] f32, may be a or b
// Grid      ceil(n_elems / 256)   Block  256   Shared  none   Assumes  nothing
// Moves     n_elems * 12 bytes   Determinism  gpu_to_gpu
// Reference cpu::reference::add (bitwise), swiglu, sigmoid_gate
#include "grid_dependency.cuh"
#include "params.h"
#include "sigmoid.cuh"

namespace apr {

enum class Binary { kAdd, kSwiglu, kSigmoidGate };

template <Binary kOp>
__global__ void elementwise(const __grid_constant__ BinaryParams p) {
  const int64_t idx = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  grid_dependency_wait();
  grid_dependency_launch();
  if (idx >= p.n_elems) {
    return;
  }
  const float a = p.a[idx], b = p.b[idx];
  if constexpr (kOp == Binary::kAdd) {
    p.y[idx] = a + b;
  } else if constexpr (kOp == Binary::kSwiglu) {
    p.y[idx] = times_sigmoid(a, a) * b;
  } else {
    p.y[idx] = times_sigmoid(a, b);
  }
}

}  // namespace apr
