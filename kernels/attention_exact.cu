// What the exact attention of a prefill needs between and after its products.
// attention_softmax  scores[h, r] = softmax(scores[h, r, 0..first_position + r]), zeros beyond
//   Reads  scores [n_heads, n_rows, n_keys] f32   Writes  the same, in place
//   Grid (n_rows, n_heads)   Block any whole warps   Shared 32 floats, static
//   Moves n_heads * n_rows * n_keys * 16 bytes, most of them in L2
// attention_gate     y *= sigmoid(gate)
//   Reads  y [n_tokens, n_heads, head_dim] f32, gate likewise with strides   Writes  y, in place
//   Grid (n_tokens, ceil(n_heads * head_dim / block))   Block any   Shared none
//   Moves n_tokens * n_heads * head_dim * 12 bytes
// Assumes   nothing   Determinism  gpu_to_gpu, for one block size
// Reference cpu::reference::attention, sigmoid_gate
#include "attention_params.h"
#include "grid_dependency.cuh"
#include "reduce.cuh"
#include "sigmoid.cuh"

namespace apr {

__global__ void attention_softmax(const __grid_constant__ SoftmaxParams p) {
  __shared__ float scratch[kMaxWarps];
  grid_dependency_wait();
  grid_dependency_launch();
  const int64_t row = blockIdx.x;
  float* scores = p.scores + blockIdx.y * p.head_stride + row * p.n_keys;
  const int n_seen = p.first_position + static_cast<int>(row) + 1;
  float largest = scores[0];
  for (int key = threadIdx.x; key < n_seen; key += blockDim.x) {
    largest = fmaxf(largest, scores[key]);
  }
  largest = block_max(largest, scratch);
  float sum = 0.0f;
  for (int key = threadIdx.x; key < n_seen; key += blockDim.x) {
    const float weight = expf(scores[key] - largest);
    scores[key] = weight;
    sum += weight;
  }
  sum = block_sum(sum, scratch);
  for (int key = threadIdx.x; key < p.n_keys; key += blockDim.x) {
    scores[key] = key < n_seen ? __fdiv_rn(scores[key], sum) : 0.0f;
  }
}

__global__ void attention_gate(const __grid_constant__ AttentionGateParams p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const int64_t token = blockIdx.x;
  const int elem = blockIdx.y * blockDim.x + threadIdx.x;
  if (elem >= p.n_heads * p.head_dim) {
    return;
  }
  const float gate = p.gate.gate[token * p.gate.token_stride +
                                 elem / p.head_dim * p.gate.head_stride + elem % p.head_dim];
  float* y = p.y + token * p.n_heads * p.head_dim + elem;
  *y = times_sigmoid(*y, gate);
}

}  // namespace apr
