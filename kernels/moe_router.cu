// Computes  logits[t] = w norm(x[t]); ids[t] = the n_used largest logits, ties to the lower id;
//           weights[t] = exp(logit - largest) / their sum over the chosen
// Reads     x [n_tokens, n_cols], w [n_experts, n_cols], f32
// Writes    normed [n_tokens, n_cols], logits [n_tokens, n_experts], ids, weights
// How       a warp multiplies kExperts rows with the kTokens tokens of its block; the last block of
//           a token tile chooses. With one token the rows are in registers before the kernel before
//           has ended.
// Grid      (ceil(n_tokens / kTokens), any): y shares the experts   Block  whole warps
// Shared    kTokens * n_cols * 4 bytes dynamic (the normed x)
// Assumes   n_cols % 4 == 0, x, norm_weight and w 16-byte aligned, arrived zero
// Moves     tiles * n_experts * n_cols * 4 + tiles * grid.y * kTokens * n_cols * 4 bytes
// Determinism  gpu_to_gpu, for one block size: the same bits for every kTokens
// Reference cpu::reference::rms_norm, matmul, moe_route: logits bounded by their sums' order; ids
//           and weights of given logits equal, weights up to the last bit of exp
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "moe_params.h"
#include "reduce.cuh"

namespace apr {

// Orders logits as numbers, NaN first, and equal ones by id, the lower one first: no two alike.
__device__ __forceinline__ uint64_t route_key(float logit, int expert) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 as 0
  const uint32_t magnitude_order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  const uint32_t order = logit == logit ? magnitude_order : 0xfffffffeu;  // above infinity
  return static_cast<uint64_t>(order) << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}

__device__ __forceinline__ uint64_t warp_max_key(uint64_t key) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, key, distance);
    key = other > key ? other : key;
  }
  return key;
}

// Chooses for one token, by one warp. `logits` are other blocks' work: read past the L1 cache.
__device__ inline void choose_experts(const MoeRouterParams& p, int token) {
  constexpr int kHeld = 8;  // logits of a lane in registers
  const int lane = threadIdx.x % kWarpSize;
  const float* logits = p.logits + static_cast<int64_t>(token) * p.n_experts;
  int32_t* ids = p.ids + static_cast<int64_t>(token) * p.n_used;
  float* weights = p.weights + static_cast<int64_t>(token) * p.n_used;
  uint64_t held[kHeld];
#pragma unroll
  for (int idx = 0; idx < kHeld; ++idx) {
    const int expert = lane + idx * kWarpSize;
    held[idx] = expert < p.n_experts ? route_key(__ldcg(logits + expert), expert) : 0;
  }
  uint64_t last = ~static_cast<uint64_t>(0);
  for (int slot = 0; slot < p.n_used; ++slot) {
    uint64_t best = 0;
#pragma unroll
    for (int idx = 0; idx < kHeld; ++idx) {
      best = held[idx] < last && held[idx] > best ? held[idx] : best;
    }
    for (int expert = lane + kHeld * kWarpSize; expert < p.n_experts; expert += kWarpSize) {
      const uint64_t key = route_key(__ldcg(logits + expert), expert);
      best = key < last && key > best ? key : best;
    }
    last = warp_max_key(best);
    if (lane == slot % kWarpSize) {
      ids[slot] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(last));
    }
  }
  // As the reference: f64, summed in the order of the slots. A lane reads the ids it wrote itself.
  const auto exp_of = [&](int slot, double largest) {
    return slot < p.n_used ? exp(static_cast<double>(__ldcg(logits + ids[slot])) - largest) : 0.0;
  };
  const int best_id = __shfl_sync(0xffffffffu, lane == 0 ? ids[0] : 0, 0);
  const double largest = static_cast<double>(__ldcg(logits + best_id));
  double sum = 0.0;
  for (int first = 0; first < p.n_used; first += kWarpSize) {
    const double mine = exp_of(first + lane, largest);
    for (int other = 0; other < kWarpSize && first + other < p.n_used; ++other) {
      sum += __shfl_sync(0xffffffffu, mine, other);
    }
  }
  for (int slot = lane; slot < p.n_used; slot += kWarpSize) {
    weights[slot] = static_cast<float>(exp_of(slot, largest) / sum);
  }
}

// The rows of one token or of several, times the norm, in shared memory; `scratch` as block_sum.
__device__ inline void stage_normed(const MoeRouterParams& p, int first_token, int n_tokens,
                                    float* staged, float* scratch) {
  for (int token = 0; token < n_tokens; ++token) {
    const float* x = p.x + static_cast<int64_t>(first_token + token) * p.n_cols;
    float* to = staged + token * p.n_cols;
    float scale = 1.0f;
    if (p.norm_weight != nullptr) {
      float sum = 0.0f;
      for (int col = threadIdx.x; col < p.n_cols; col += blockDim.x) {
        sum += x[col] * x[col];
      }
      const float mean = __fdiv_rn(block_sum(sum, scratch), static_cast<float>(p.n_cols));
      scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
      __syncthreads();  // scratch is free for the next token
    }
    for (int col = threadIdx.x; col < p.n_cols; col += blockDim.x) {
      const float value = p.norm_weight == nullptr ? x[col] : x[col] * scale * p.norm_weight[col];
      to[col] = value;
      if (p.normed != nullptr && blockIdx.y == 0) {
        p.normed[static_cast<int64_t>(first_token + token) * p.n_cols + col] = value;
      }
    }
  }
}

__device__ __forceinline__ float4 quartet_at(const float* values, int quartet) {
  return reinterpret_cast<const float4*>(values)[quartet];
}

__device__ __forceinline__ float add_products(float sum, const float4& a, const float4& b) {
  sum += a.x * b.x;
  sum += a.y * b.y;
  sum += a.z * b.z;
  sum += a.w * b.w;
  return sum;
}

template <int kTokens, int kExperts>
__global__ void moe_router(const __grid_constant__ MoeRouterParams p) {
  constexpr int kHeld = kTokens == 1 ? 16 : 0;  // quartets of the first row, of each lane
  APR_DYNAMIC_SHARED(float, staged);            // [kTokens, n_cols]
  __shared__ float scratch[kMaxWarps];
  __shared__ bool is_last;
  static_assert(kTokens == 1 ? kExperts == 1 : true, "what is held is of one row");
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int n_warps = blockDim.x / kWarpSize;
  const int n_quartets = p.n_cols / 4;
  const int first_token = blockIdx.x * kTokens;
  const int n_tokens = min(kTokens, p.n_tokens - first_token);
  const int expert_step = gridDim.y * n_warps * kExperts;
  const int first_expert = (blockIdx.y * n_warps + warp) * kExperts;
  float4 held[kHeld == 0 ? 1 : kHeld];
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int idx = 0; idx < kHeld; ++idx) {
      const int quartet = lane + idx * kWarpSize;
      held[idx] = first_expert < p.n_experts && quartet < n_quartets
                      ? quartet_at(p.w + static_cast<int64_t>(first_expert) * p.n_cols, quartet)
                      : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  grid_dependency_wait();
  grid_dependency_launch();
  stage_normed(p, first_token, n_tokens, staged, scratch);
  __syncthreads();
  for (int expert = first_expert; expert < p.n_experts; expert += expert_step) {
    float sums[kExperts][kTokens] = {};
    int quartet = lane;
    if constexpr (kHeld > 0) {
      if (expert == first_expert) {
#pragma unroll
        for (int idx = 0; idx < kHeld; ++idx) {
          if (quartet < n_quartets) {
            sums[0][0] = add_products(sums[0][0], held[idx], quartet_at(staged, quartet));
          }
          quartet += kWarpSize;
        }
      }
    }
    for (; quartet < n_quartets; quartet += kWarpSize) {
      float4 w[kExperts];
#pragma unroll
      for (int idx = 0; idx < kExperts; ++idx) {
        const int row = min(expert + idx, p.n_experts - 1);
        w[idx] = quartet_at(p.w + static_cast<int64_t>(row) * p.n_cols, quartet);
      }
#pragma unroll
      for (int token = 0; token < kTokens; ++token) {
        if (token < n_tokens) {
          const float4 x = quartet_at(staged + token * p.n_cols, quartet);
#pragma unroll
          for (int idx = 0; idx < kExperts; ++idx) {
            sums[idx][token] = add_products(sums[idx][token], w[idx], x);
          }
        }
      }
    }
#pragma unroll
    for (int idx = 0; idx < kExperts; ++idx) {
#pragma unroll
      for (int token = 0; token < kTokens; ++token) {
        const float logit = warp_sum(sums[idx][token]);
        if (lane == 0 && token < n_tokens && expert + idx < p.n_experts) {
          p.logits[static_cast<int64_t>(first_token + token) * p.n_experts + expert + idx] = logit;
        }
      }
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(p.arrived + blockIdx.x, 1u) == gridDim.y - 1;
    if (is_last) {
      p.arrived[blockIdx.x] = 0;
      __threadfence();
    }
  }
  __syncthreads();
  if (is_last) {
    for (int token = warp; token < n_tokens; token += n_warps) {
      choose_experts(p, first_token + token);
    }
  }
}

}  // namespace apr
