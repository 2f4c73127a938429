// Computes  logits[t] = w norm(x[t]); ids[t] = the n_used largest logits, ties to the lower id;
//           weights[t] = exp(logit - largest) / their sum over the chosen
// Reads     x [n_tokens, n_cols], w [n_experts, n_cols], f32
// Writes    normed [n_tokens, n_cols], logits [n_tokens, n_experts], ids, weights
// How       a warp multiplies kExperts rows with the kTokens tokens of its block; the last block of
//           a token tile chooses. With one token the rows are in registers before the kernel before
//           has ended.
// Grid      (ceil(n_tokens / kTokens), any): y shares the experts   Block  whole warps
// Shared    kTokens * n_cols * 4 bytes dynamic (the normed x)
// Assumes   n_cols % 4 == 0, x, norm_weight, normed and w 16-byte aligned, arrived zero
// Moves     tiles * n_experts * n_cols * 4 + tiles * grid.y * kTokens * n_cols * 4 bytes
// Determinism  gpu_to_gpu, for one block size: the same bits for every kTokens
// Reference cpu::reference::rms_norm, matmul, moe_route: logits bounded by their sums' order; ids
//           and weights of given logits equal, weights up to the last bit of exp
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "moe_params.h"
#include "prefetch.cuh"
#include "reduce.cuh"

namespace apr {

// Orders logits as numbers, NaN first; none is 0.
__device__ __forceinline__ uint32_t order_of(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 as 0
  const uint32_t magnitude_order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return logit == logit ? magnitude_order : 0xfffffffeu;  // above infinity
}

__device__ __forceinline__ float logit_of(uint32_t order) {
  return order == 0xfffffffeu ? __uint_as_float(0x7fffffffu)
                              : __uint_as_float(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}

// Chooses for one token, by one warp: slot by slot the largest logit after the one before, of equal
// ones the lower id. `logits` are other blocks' work: read past the L1 cache.
__device__ inline void choose_experts(const MoeRouterParams& p, int token) {
  constexpr int kHeld = 8;  // logits of a lane in registers
  const int lane = threadIdx.x % kWarpSize;
  const float* logits = p.logits + static_cast<int64_t>(token) * p.n_experts;
  int32_t* ids = p.ids + static_cast<int64_t>(token) * p.n_used;
  float* weights = p.weights + static_cast<int64_t>(token) * p.n_used;
  uint32_t held[kHeld];
#pragma unroll
  for (int idx = 0; idx < kHeld; ++idx) {
    const int expert = lane + idx * kWarpSize;
    held[idx] = expert < p.n_experts ? order_of(__ldcg(logits + expert)) : 0;
  }
  uint32_t last_order = 0xffffffffu, largest_order = 0, mine = 0;  // mine: of the slot of this lane
  int last_expert = -1;
  for (int slot = 0; slot < p.n_used; ++slot) {
    const auto is_left = [&](uint32_t order, int expert) {
      return order < last_order || (order == last_order && expert > last_expert);
    };
    uint32_t best = 0;
    int best_expert = 0;  // of this lane, the lowest with `best`
    const auto take = [&](uint32_t order, int expert) {
      if (is_left(order, expert) && order > best) {
        best = order;
        best_expert = expert;
      }
    };
#pragma unroll
    for (int idx = 0; idx < kHeld; ++idx) {
      take(held[idx], lane + idx * kWarpSize);
    }
    for (int expert = lane + kHeld * kWarpSize; expert < p.n_experts; expert += kWarpSize) {
      take(order_of(__ldcg(logits + expert)), expert);
    }
    last_order = warp_max(best);
    last_expert = static_cast<int>(
        warp_min(best == last_order ? static_cast<uint32_t>(best_expert) : 0xffffffffu));
    largest_order = slot == 0 ? last_order : largest_order;
    if (lane == slot % kWarpSize) {
      mine = last_order;
      ids[slot] = last_expert;
    }
  }
  // As the reference: f64, summed in the order of the slots. Of more slots than lanes a lane reads
  // the ids it wrote itself.
  const auto largest = static_cast<double>(logit_of(largest_order));
  const auto exp_of = [&](int slot) {
    if (slot >= p.n_used) {
      return 0.0;
    }
    const float logit = p.n_used <= kWarpSize ? logit_of(mine) : __ldcg(logits + ids[slot]);
    return exp(static_cast<double>(logit) - largest);
  };
  double sum = 0.0, own = 0.0;
  for (int first = 0; first < p.n_used; first += kWarpSize) {
    own = exp_of(first + lane);
    for (int other = 0; other < kWarpSize && first + other < p.n_used; ++other) {
      sum += __shfl_sync(0xffffffffu, own, other);
    }
  }
  for (int slot = lane; slot < p.n_used; slot += kWarpSize) {
    weights[slot] = static_cast<float>((p.n_used <= kWarpSize ? own : exp_of(slot)) / sum);
  }
}

__device__ __forceinline__ float4 quartet_at(const float* values, int quartet) {
  return reinterpret_cast<const float4*>(values)[quartet];
}

// The rows of one token or of several, times the norm, in shared memory; `scratch` as block_sum.
__device__ inline void stage_normed(const MoeRouterParams& p, int first_token, int n_tokens,
                                    float* staged, float* scratch) {
  const int n_quartets = p.n_cols / 4;
  for (int token = 0; token < n_tokens; ++token) {
    const int64_t row = static_cast<int64_t>(first_token + token) * p.n_cols;
    float scale = 1.0f;
    if (p.norm_weight != nullptr) {
      float sum = 0.0f;
      for (int quartet = threadIdx.x; quartet < n_quartets; quartet += blockDim.x) {
        const float4 x = quartet_at(p.x + row, quartet);
        sum += x.x * x.x + x.y * x.y + (x.z * x.z + x.w * x.w);
      }
      const float mean = __fdiv_rn(block_sum(sum, scratch), static_cast<float>(p.n_cols));
      scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
      __syncthreads();  // scratch is free for the next token
    }
    for (int quartet = threadIdx.x; quartet < n_quartets; quartet += blockDim.x) {
      float4 value = quartet_at(p.x + row, quartet);
      if (p.norm_weight != nullptr) {
        const float4 w = quartet_at(p.norm_weight, quartet);
        value = make_float4(value.x * scale * w.x, value.y * scale * w.y, value.z * scale * w.z,
                            value.w * scale * w.w);
      }
      reinterpret_cast<float4*>(staged + token * p.n_cols)[quartet] = value;
      if (p.normed != nullptr && blockIdx.y == 0) {
        reinterpret_cast<float4*>(p.normed + row)[quartet] = value;
      }
    }
  }
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
  if (p.norm_weight != nullptr && threadIdx.x * (kLineBytes / 4) < p.n_cols) {
    prefetch_l2(p.norm_weight + threadIdx.x * (kLineBytes / 4));
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
