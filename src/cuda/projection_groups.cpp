#include "cuda/projection_groups.h"

#include <algorithm>

namespace apr::cuda {
namespace {

constexpr uint64_t kAlignBytes = 256;
constexpr int64_t kRareScratchBytes = int64_t{16} << 20;
constexpr int64_t kQ8Elems = 32;

}  // namespace

std::vector<ProjectionGroup> projection_groups(const ExecPlan& prefill) {
  std::vector<ProjectionGroup> groups;
  for (const Stage& stage : prefill.stages) {
    if (stage.kernel == "moe_route") {
      continue;  // its matrix is multiplied there
    }
    ProjectionGroup group;
    for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
      const Op& op = prefill.plan->ops[static_cast<size_t>(op_idx)];
      if (op.kind == OpKind::kMatmul) {
        group.layer_idx = op.layer_idx;
        group.every_row =
            prefill.plan->values[static_cast<size_t>(op.outputs[0])].rows == RowDomain::kTokens;
        group.e4m3 = has_e4m3_products(*prefill.plan, prefill.target, op.inputs[0]);
        group.weights.push_back(op.weights[0]);
      }
    }
    if (!group.weights.empty()) {
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

uint64_t HalfPlaces::total_bytes() const {
  uint64_t total = 0;
  for (const uint64_t n_bytes : layer_bytes) {
    total += n_bytes;
  }
  return total;
}

HalfPlaces half_places(std::span<const ProjectionGroup> groups) {
  HalfPlaces found;
  int layer_idx = -1;
  for (const ProjectionGroup& group : groups) {
    if (group.every_row && (found.layer_bytes.empty() || group.layer_idx != layer_idx)) {
      found.layer_bytes.push_back(0);
      layer_idx = group.layer_idx;
    }
    if (group.every_row) {
      found.layer_bytes.back() =
          (found.layer_bytes.back() + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    }
    for (const Weight* weight : group.weights) {
      HalfPlaces::Place place;
      place.elem_bytes = group.e4m3 ? 1 : 2;
      if (group.every_row) {
        place.layer = static_cast<int64_t>(found.layer_bytes.size()) - 1;
        place.offset_bytes = static_cast<int64_t>(found.layer_bytes.back());
        found.layer_bytes.back() +=
            static_cast<uint64_t>(weight->n_rows * weight->n_cols * place.elem_bytes);
      }
      found.places[weight] = place;
      found.order.push_back(weight);
    }
  }
  return found;
}

ProjectionSizes projection_sizes(std::span<const ProjectionGroup> groups, PrefillGemm mode,
                                 bool kept, int64_t max_rows, int64_t most_scratch_bytes) {
  int64_t scratch_bytes = 0, most_cols = 0, most_products = 0, n_matrices = 0, x_bytes = 0;
  for (const ProjectionGroup& group : groups) {
    const int64_t n_group_rows = group.e4m3 ? e4m3_values_bytes(max_rows, 1) : max_rows;
    const int64_t elem_bytes = group.e4m3 ? 1 : 2;  // where rows are scaled
    int64_t n_products = 0;
    for (const Weight* weight : group.weights) {
      const PrefillGemm ran = choose_gemm(mode, *weight, weight->n_rows).ran;
      const bool needs_scratch =
          scales_rows(ran) ? !(kept && group.every_row) : weight->type->name != "F32";
      if (needs_scratch) {
        // What dp4a multiplies needs it for results that are not dense alone: little is enough.
        const int64_t most_bytes = ran == PrefillGemm::kDp4a
                                       ? std::min(most_scratch_bytes, kRareScratchBytes)
                                       : most_scratch_bytes;
        const int64_t row_bytes = weight->n_cols * (scales_rows(ran) ? elem_bytes : 4);
        const int64_t least_rows = group.e4m3 ? kE4m3Multiple : 1;
        const int64_t n_rows =
            std::min(weight->n_rows, std::max(most_bytes / row_bytes, least_rows));
        scratch_bytes = std::max(scratch_bytes, n_rows * row_bytes);
      }
      n_products += weight->n_rows;
      most_cols = std::max(most_cols, weight->n_cols);
      x_bytes = std::max(x_bytes, n_group_rows * weight->n_cols * elem_bytes);
      ++n_matrices;
    }
    if (group.every_row) {
      most_products = std::max(most_products, n_group_rows * n_products);
    }
  }
  const auto rows = [&](int64_t elems_per_row, int64_t elem_bytes) {
    return static_cast<uint64_t>(max_rows * elems_per_row * elem_bytes);
  };
  ProjectionSizes sizes;
  sizes.largest = static_cast<uint64_t>(n_matrices) * sizeof(float);
  sizes.weight_scratch = static_cast<uint64_t>(scratch_bytes);
  if (scales_rows(mode)) {
    sizes.x = static_cast<uint64_t>(x_bytes);
    sizes.undo = rows(1, 4);
    sizes.products = static_cast<uint64_t>(most_products * 4);
  } else if (mode == PrefillGemm::kDp4a) {
    sizes.x = rows(most_cols, 1);
    sizes.q8_scale = sizes.q8_sum = rows((most_cols + kQ8Elems - 1) / kQ8Elems, 4);
  }
  return sizes;
}

}  // namespace apr::cuda
