// Computes  the next token: the candidates' weights at the temperature (min-p leaves some out) and
//           the draw among them by ascending id; and from it the next decode step
// Reads     logits [n_tokens] f32, the state
// Writes    the state, the outcome, id and position of the next step, counts and history
// Grid      ceil(n_tokens / chunk), at most kMostSampleBlocks; the last block to end decides
// Block     kSampleThreads   Shared  static: 9 KB
// Assumes   sample_best and the selections ran. After `done` it reads but that and writes nothing
// Moves     n_tokens * 4 bytes, from L2
// Determinism  gpu_to_gpu: integer sums   Reference  Sampler::sample, the same token
#include "sample_device.cuh"
#include "sample_draw.cuh"

namespace apr {

__global__ void __launch_bounds__(kSampleThreads)
    sample_draw(const __grid_constant__ SampleParams p) {
  __shared__ DrawShared shared;
  grid_dependency_wait();
  grid_dependency_launch();
  draw_block(DeviceBlock{}, p, shared);
}

}  // namespace apr
