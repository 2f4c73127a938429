#include "cuda/prefill_tier.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/quant_traits.h"
#include "small_gemm_layout.cuh"

namespace apr::cuda {
namespace {

constexpr int kMostSlots = 4;
constexpr int64_t kMostTokenTiles = kMostFusedTokensStreamed / kSmallGemmTokens;

int64_t most_fused_tokens(HalfStore store) {
  return store == HalfStore::kCached ? kMostFusedTokens : kMostFusedTokensStreamed;
}

int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

int unit_bytes_of(const QuantType& type) {
  return visit_quant_type(type, []<class T>() -> int {
    if constexpr (T::kBlockElems == 1) {
      return 0;
    } else {
      return quant::unit_bytes<T>();
    }
  });
}

int64_t slot_bytes_of(const QuantType& type, int row_warps_log2, int64_t n_tokens) {
  return small_gemm_slot_bytes(
      unit_bytes_of(type), 1 << row_warps_log2,
      static_cast<int>(ceil_div(std::min<int64_t>(n_tokens, kSmallGemmTokens), 8)));
}

int64_t tiles_of(std::span<const int64_t> part_rows, int row_warps_log2) {
  int64_t n_tiles = 0;
  for (const int64_t n_rows : part_rows) {
    n_tiles += ceil_div(n_rows, int64_t{32} << row_warps_log2);
  }
  return n_tiles;
}

}  // namespace

TierChoice choose_prefill_tier(const TierCase& of) {
  if (!of.tensor_cores) {
    return {PrefillTier::kLibrary, "before sm_80 there are no tensor cores for it"};
  }
  if (of.type->block_elems == 1) {
    return {PrefillTier::kLibrary, "a plain type has nothing to decode"};
  }
  if (of.n_tokens > most_fused_tokens(of.store)) {
    return {PrefillTier::kLibrary, "more tokens than decoding pays for"};
  }
  if (2 * slot_bytes_of(*of.type, 2, of.n_tokens) > of.shared_bytes) {
    return {PrefillTier::kLibrary, "too little shared memory"};
  }
  return {};
}

std::string describe_tiers(std::span<const ProjectionGroup> groups, HalfStore store,
                           bool tensor_cores, int64_t shared_bytes) {
  std::string_view reason = "there are no products";
  for (const ProjectionGroup& group : groups) {
    for (const Weight* weight : group.weights) {
      const TierChoice choice =
          choose_prefill_tier({weight->type, 1, store, tensor_cores, shared_bytes});
      if (choice.tier == PrefillTier::kFused) {
        return fmt::format("small_gemm to {} tokens, cuBLAS beyond", most_fused_tokens(store));
      }
      reason = choice.reason;
    }
  }
  return fmt::format("cuBLAS alone: {}", reason);
}

SmallGemmShape small_gemm_shape(const QuantType& type, std::span<const int64_t> part_rows,
                                int64_t n_cols, int64_t n_tokens, int n_sm, int64_t shared_bytes) {
  const int64_t n_token_tiles = ceil_div(n_tokens, kSmallGemmTokens);
  const int64_t most_blocks = std::max<int64_t>(1, n_sm / n_token_tiles);
  const int64_t n_units = quant::units_of(n_cols);
  SmallGemmShape best;
  int64_t fewest = INT64_MAX;
  for (const int row_warps_log2 : {3, 2}) {
    const int64_t slot_bytes = slot_bytes_of(type, row_warps_log2, n_tokens);
    const int64_t n_slots = std::min<int64_t>(kMostSlots, shared_bytes / slot_bytes);
    const int64_t n_tiles = tiles_of(part_rows, row_warps_log2);
    const int64_t n_blocks = std::min(most_blocks, n_tiles * n_units);
    const int64_t rounds = ceil_div(n_tiles * n_units, n_blocks) << row_warps_log2;
    if (n_slots >= 2 && rounds < fewest) {
      fewest = rounds;
      best = {
          row_warps_log2, static_cast<int>(n_slots),       n_slots * slot_bytes,
          n_tiles,        static_cast<uint32_t>(n_blocks), static_cast<uint32_t>(n_token_tiles)};
    }
  }
  return best;
}

SmallGemmSizes small_gemm_sizes(std::span<const ProjectionGroup> groups, bool tensor_cores,
                                int n_sm) {
  int64_t most_tiles = 0;
  for (const ProjectionGroup& group : groups) {
    int64_t n_tiles = 0;
    for (const Weight* weight : group.weights) {
      if (weight->type->block_elems > 1) {
        n_tiles += tiles_of({&weight->n_rows, 1}, 2);
      }
    }
    most_tiles = std::max(most_tiles, n_tiles);
  }
  if (!tensor_cores || most_tiles == 0) {
    return {};
  }
  const uint64_t most_blocks = static_cast<uint64_t>(std::max<int64_t>(n_sm, kMostTokenTiles));
  return {2 * most_blocks * kSmallGemmRows * kSmallGemmTokens * sizeof(float),
          static_cast<uint64_t>(most_tiles * kMostTokenTiles) * sizeof(uint32_t)};
}

}  // namespace apr::cuda
