#include <limits>

#include "apr/fit.h"
#include "fit/fault_points.h"

namespace apr {
namespace {

uint64_t saturating_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

uint64_t saturating_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

bool is_projection(const Weight& weight, bool tied_head) {
  switch (weight.role) {
    case Role::kAttnQ:
    case Role::kAttnK:
    case Role::kAttnV:
    case Role::kAttnOutput:
    case Role::kAttnQkv:
    case Role::kAttnGate:
    case Role::kSsmAlpha:
    case Role::kSsmBeta:
    case Role::kSsmOut:
    case Role::kFfnGate:
    case Role::kFfnUp:
    case Role::kFfnDown:
    case Role::kFfnGateInp:
    case Role::kFfnGateExps:
    case Role::kFfnUpExps:
    case Role::kFfnDownExps:
    case Role::kFfnGateShexp:
    case Role::kFfnUpShexp:
    case Role::kFfnDownShexp:
      return true;
    case Role::kOutput:
      return !planted(FitFault::kNoHead);
    case Role::kTokenEmbd:
      return tied_head && !planted(FitFault::kNoHead);
    default:
      return false;
  }
}

}  // namespace

ResidentEstimate resident_estimate(const Model& model, uint64_t kv_elem_bytes) {
  ResidentEstimate estimate;
  for (const Weight& weight : model.weights()) {
    if (is_projection(weight, model.desc().tied_head)) {
      const int64_t n_experts = planted(FitFault::kOneExpert) ? 1 : weight.n_experts;
      ++estimate.n_matrices;
      estimate.weights_bytes += static_cast<uint64_t>(weight.size_bytes);
      estimate.n_elems += static_cast<uint64_t>(n_experts * weight.n_rows * weight.n_cols);
    }
  }
  for (const LayerDesc& layer : model.desc().layers) {
    if (layer.mixer == Mixer::kAttention) {
      estimate.kv_bytes_per_position +=
          2 * static_cast<uint64_t>(model.desc().attention.kv_dim()) * kv_elem_bytes;
    }
  }
  return estimate;
}

uint64_t PrefillNeed::total_bytes() const {
  return saturating_add(saturating_add(weights_bytes, cache_bytes),
                        saturating_add(kv_bytes, reserve_bytes));
}

PrefillNeed prefill_need(const ResidentEstimate& estimate, uint64_t cache_elem_bytes,
                         int64_t n_positions) {
  const uint64_t elem_bytes =
      planted(FitFault::kOneByteCache) ? cache_elem_bytes / 2 : cache_elem_bytes;
  PrefillNeed need;
  need.weights_bytes = planted(FitFault::kNoWeights) ? 0 : estimate.weights_bytes;
  need.cache_bytes =
      planted(FitFault::kNoCache) ? 0 : saturating_product(estimate.n_elems, elem_bytes);
  need.kv_bytes = planted(FitFault::kNoKv) ? 0
                                           : saturating_product(estimate.kv_bytes_per_position,
                                                                static_cast<uint64_t>(n_positions));
  need.reserve_bytes = planted(FitFault::kNoReserve) ? 0 : kPrefillReserveBytes;
  return need;
}

}  // namespace apr
