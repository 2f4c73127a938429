// The mixture-of-experts ops on the GPU: choosing experts, and the products of the chosen ones.
// Nothing of it waits for the host, and one captured launch serves every choice.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "apr/model.h"
#include "cuda/dequantizer.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/moe_sizes.h"
#include "cuda/weights.h"
#include "moe_params.h"

namespace apr::cuda {

// logits = router norm(x); the best n_used of each token.
struct MoeRouteCall {
  const Weight* router = nullptr;      // [n_experts, model_dim], of the model
  const float* x = nullptr;            // [n_tokens, model_dim] f32
  const float* norm_weight = nullptr;  // [model_dim] f32 of an RMS norm applied to x first, or null
  float eps = 0.0F;                    // of the norm
  float* normed = nullptr;             // [n_tokens, model_dim] f32; null without a norm
  int64_t n_tokens = 0;                // at most Options::max_rows
  int32_t* ids = nullptr;              // [n_tokens, n_used]
  float* weights = nullptr;            // [n_tokens, n_used] f32
};

// y = (init + sum over chosen experts of weight * down(silu(gate x) * (up x))) (+ residual)
struct MoeFfnCall {
  const Weight *gate = nullptr, *up = nullptr;  // [n_experts, ffn_dim, model_dim], of the model
  const Weight* down = nullptr;                 // [n_experts, model_dim, ffn_dim]
  const float* x = nullptr;                     // [n_tokens, model_dim] f32
  const int32_t* ids = nullptr;                 // [n_tokens, n_used], each in [0, n_experts)
  const float* weights = nullptr;               // [n_tokens, n_used] f32
  const float* init = nullptr;                  // [n_tokens, model_dim] f32 or null
  const float* residual = nullptr;              // [n_tokens, model_dim] f32 or null
  float* y = nullptr;                           // [n_tokens, model_dim] f32
  int64_t n_tokens = 0;                         // at most Options::max_rows
};

// What of a model's experts the kernels cannot take: "blk.0.ffn_up_exps.weight: ..."; nothing
// where they take all. Looks at no device.
std::optional<std::string> missing_moe(std::span<const Weight> weights);

// Names of the kernel rows moe_... that Moe launches; none without experts in `weights`.
std::vector<std::string> moe_kernels(std::span<const Weight> weights, bool exact,
                                     const DeviceFacts& device);

class Moe {
 public:
  struct Options {
    bool exact = false;
    int64_t max_rows = 1;  // tokens of a call
  };

  // Allocates scratch for the experts among `model` (weights of `weights`) and prepares their
  // scales on `stream`, without waiting. What it is given must outlive it. Throws
  // kBackendUnavailable.
  Moe(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
      const DeviceWeights& weights, std::span<const Weight> model, const MoeDesc& desc,
      const Options& options);

  // Both on the stream. Contract: tests/gpu_moe_test.cpp. Throw kBackendUnavailable.
  void route(const MoeRouteCall& call);
  void ffn(const MoeFfnCall& call);

 private:
  // Products of all pairs of a call with one stack.
  struct Product {
    const Weight* stack = nullptr;
    const float* x = nullptr;  // [n_pairs / pairs_of_row, n_cols] f32
    int64_t pairs_of_row = 1;
    const float* gate = nullptr;  // as MoeProductParams
    float* y = nullptr;           // [n_pairs, n_rows] f32
  };

  MoePath path_of(const Weight& stack) const {
    return choose_moe_path(stack, options_.exact, device_.cc_major >= 8);
  }
  void allocate(std::span<const Weight> model);
  void ffn_of_one(const MoeFfnCall& call);
  void ffn_of_many(const MoeFfnCall& call);
  // Whether moe_matvec can: room in shared memory for `n_staged` rows of x.
  bool has_matvec(const Weight& stack, int64_t n_staged) const;
  void matvec(const Weight& stack, const Weight* second, MoeMatvecParams params);
  void group(const MoeFfnCall& call);
  F16Rows half_rows(const float* x, int64_t n_rows, int64_t n_cols);
  // Of one token (`ids`), or of the groups; `x` of tensor cores is x_f16.
  void multiply_fma(const Product& product, const int32_t* ids, int64_t n_pairs);
  void multiply_gemm(const Product& product, const F16Rows& x, int64_t n_pairs);
  void combine(const MoeFfnCall& call);

  const KernelLibrary& kernels_;
  const Stream& stream_;
  DeviceFacts device_;
  const DeviceWeights& weights_;
  Options options_;
  Dequantizer dequantizer_;
  MoeDesc desc_;
  int64_t n_experts_, n_used_;
  std::unordered_map<const Weight*, int64_t> router_offset_bytes_;  // in routers_
  std::unordered_map<const Weight*, size_t> largest_idx_;  // of the stacks that moe_gemm takes
  DeviceBuffer routers_;                                   // f32 copies of those that are not
  DeviceBuffer largest_;                                   // [stacks] f32
  DeviceBuffer logits_;                                    // [max_rows, n_experts] f32
  DeviceBuffer arrived_;  // [max_rows + 1] u32: blocks of the router's token tiles, of moe_group
  DeviceBuffer pairs_, first_, tiles_, n_tiles_;  // MoeGroups
  DeviceBuffer hidden_;                           // [max_rows * n_used, ffn_dim] f32
  DeviceBuffer parts_;                            // [max_rows * n_used, model_dim] f32
  DeviceBuffer halves_, undo_;                    // F16Rows of x, or of hidden_
};

}  // namespace apr::cuda
