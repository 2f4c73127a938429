// Computes  logits with penalties; their argmax, the lowest id of ties; with greedy sampling the
//           next token and, from it, the next decode step
// Reads     logits [n_tokens] f32, counts [n_tokens] where there are penalties, the settings
// Writes    logits (penalties), the state; greedy or on a fault: the outcome, the next step
// Grid      ceil(n_tokens / chunk), at most kMostSampleBlocks; the last block to end decides
// Block     kSampleThreads   Shared  static: 6 KB
// Assumes   chunk >= 1. After `done` it reads but that and writes nothing
// Moves     n_tokens * 4 bytes, 8 with penalties; from L2
// Determinism  gpu_to_gpu   Reference  Sampler::sample, the same token
#include "sample_best.cuh"
#include "sample_device.cuh"

namespace apr {

__global__ void __launch_bounds__(kSampleThreads)
    sample_best(const __grid_constant__ SampleParams p) {
  __shared__ BestShared shared;
  grid_dependency_wait();
  grid_dependency_launch();
  best_block(DeviceBlock{}, p, shared);
}

}  // namespace apr
