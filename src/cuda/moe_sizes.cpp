#include "cuda/moe_sizes.h"

#include <algorithm>

#include "matvec_layout.cuh"
#include "moe_gemm_layout.cuh"
#include "moe_params.h"

namespace apr::cuda {

bool is_expert_stack(const Weight& weight) {
  return weight.role == Role::kFfnGateExps || weight.role == Role::kFfnUpExps ||
         weight.role == Role::kFfnDownExps;
}

MoePath choose_moe_path(const Weight& stack, bool exact, bool tensor_cores) {
  const bool fits = stack.type->block_elems > 1 && stack.n_rows % quant::kUnitRows == 0 &&
                    stack.n_cols % kScaleElems == 0;
  return !exact && tensor_cores && fits ? MoePath::kTensorCores : MoePath::kFma;
}

int64_t most_moe_tiles(int64_t n_pairs, int64_t n_experts) {
  return (n_pairs + kMoeGemmPairs - 1) / kMoeGemmPairs + std::min(n_experts, n_pairs);
}

MoeSizes moe_sizes(std::span<const Weight> weights, const MoeDesc& moe, bool exact,
                   bool tensor_cores, int64_t max_rows) {
  const int64_t n_pairs = max_rows * moe.n_used;
  int64_t router_bytes = 0, n_scaled = 0, hidden_elems = 0, part_elems = 0, half_elems = 0;
  bool has_experts = false;
  for (const Weight& weight : weights) {
    if (weight.role == Role::kFfnGateInp && weight.type->name != "F32") {
      router_bytes += (weight.n_rows * weight.n_cols * 4 + kMoeAlignBytes - 1) / kMoeAlignBytes *
                      kMoeAlignBytes;
    }
    if (!is_expert_stack(weight)) {
      continue;
    }
    has_experts = true;
    const bool is_down = weight.role == Role::kFfnDownExps;
    int64_t& elems = is_down ? part_elems : hidden_elems;
    elems = std::max(elems, n_pairs * weight.n_rows);
    if (choose_moe_path(weight, exact, tensor_cores) == MoePath::kTensorCores) {
      ++n_scaled;
      half_elems = std::max(half_elems, (is_down ? n_pairs : max_rows) * weight.n_cols);
    }
  }
  if (!has_experts) {
    return {};
  }
  const auto bytes = [](int64_t n_elems, int64_t elem_bytes) {
    return static_cast<uint64_t>(n_elems * elem_bytes);
  };
  MoeSizes sizes;
  sizes.routers = bytes(router_bytes, 1);
  sizes.largest = bytes(n_scaled, 4);
  sizes.logits = bytes(max_rows * moe.n_experts, 4);
  sizes.arrived = bytes(max_rows + 1, 4);
  sizes.pairs = bytes(n_pairs, 4);
  sizes.first = bytes(moe.n_experts + 1, 4);
  sizes.tiles = bytes(most_moe_tiles(n_pairs, moe.n_experts), sizeof(MoeTile));
  sizes.n_tiles = bytes(1, 4);
  sizes.hidden = bytes(hidden_elems, 4);
  sizes.parts = bytes(part_elems, 4);
  sizes.halves = bytes(half_elems, 2);
  sizes.undo = half_elems > 0 ? bytes(n_pairs, 4) : 0;
  return sizes;
}

}  // namespace apr::cuda
