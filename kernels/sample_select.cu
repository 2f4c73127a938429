// Computes  one digit of the key at which top-k (counts) or top-p (weights) cuts the candidates
// Reads     logits [n_tokens] f32, the state     Writes  the state
// Grid      ceil(n_tokens / chunk), at most kMostSampleBlocks; the last block to end decides
// Block     kSampleThreads   Shared  static: 29 KB, a histogram
// Assumes   launches of digits 0, 1, 2 one after the other, after sample_best; of top-k before
//           those of top-p; chunk <= 2^17. After `done` it reads but that and writes nothing
// Moves     n_tokens * 4 bytes, from L2
// Determinism  gpu_to_gpu: integer sums   Reference  Sampler::sample, the same candidates
#include "sample_device.cuh"
#include "sample_select.cuh"

namespace apr {

template <bool kWeighted>
__global__ void __launch_bounds__(kSampleThreads)
    sample_select(const __grid_constant__ SampleParams p) {
  __shared__ SelectShared shared;
  grid_dependency_wait();
  grid_dependency_launch();
  select_block<kWeighted>(DeviceBlock{}, p, shared);
}

}  // namespace apr
