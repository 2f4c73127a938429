#include "cuda/prefill_tier.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/launch_matvec.h"
#include "matvec_rows_layout.cuh"
#include "small_gemm_layout.cuh"

namespace apr::cuda {
namespace {

constexpr int64_t kMostSlots = 4, kMostSplits = 16;

// Measured on an H200 with tools/bench/gpu_projection_bench: what every launch takes, the end of a
// tile, 256 columns of 256 rows at the least and of each token, and the bytes of a nanosecond that
// one multiprocessor loads, and all of them together.
constexpr double kLaunchNs = 2500, kTileEndNs = 500, kItemNs = 3400, kTokenNs = 30;
constexpr double kBytesOfNs = 24, kDeviceBytesOfNs = 4000;
// Of matvec_rows, in the same way: what every launch takes, the end of a tile, a unit of a warp
// where 16 run at once, and of each tile of tokens; the bytes of x that a block stages in a
// nanosecond.
constexpr double kMatvecLaunchNs = 1500, kMatvecTileEndNs = 400, kUnitNs = 1200;
constexpr double kUnitTokensNs = 400, kStagedBytesOfNs = 20;
// Among kernels that start while the one before ends, a call of cuBLAS takes that much more.
constexpr double kLibraryBreakNs = 3000;
constexpr double kLibraryLaunchNs = 3400, kDequantLaunchNs = 3000;

int64_t rows_of(const TierProduct& of) {
  int64_t n_rows = 0;
  for (const int64_t rows : of.part_rows) {
    n_rows += rows;
  }
  return n_rows;
}

// What cuBLAS takes, with the making of 16-bit weights where they are not kept.
double library_ns(const TierProduct& of, HalfStore store) {
  const auto n_elems = static_cast<double>(rows_of(of) * of.n_cols);
  const double kept_ns = kLibraryLaunchNs +
                         (of.n_tokens <= kMostMatvecRowsTokens ? kLibraryBreakNs : 0.0) +
                         2.0 * n_elems / kDeviceBytesOfNs;
  if (store == HalfStore::kCached) {
    return kept_ns;
  }
  const double block_bytes = static_cast<double>(of.type->block_bytes) /
                             static_cast<double>(of.type->block_elems) * n_elems;
  return static_cast<double>(of.part_rows.size()) * kDequantLaunchNs +
         (block_bytes + 2.0 * n_elems) / kDeviceBytesOfNs + kept_ns;
}

}  // namespace

SmallGemmShape small_gemm_shape(const TierProduct& of) {
  const int64_t n_token_tiles = divide_up(of.n_tokens, kSmallGemmTokens);
  const int64_t tile_tokens = std::min<int64_t>(of.n_tokens, kSmallGemmTokens);
  const int64_t most_blocks = std::max<int64_t>(1, of.n_sm / n_token_tiles);
  const int64_t n_units = quant::units_of(of.n_cols), n_rows = rows_of(of);
  const auto unit_bytes = static_cast<int>(matvec_shared(*of.type).unit_bytes);
  SmallGemmShape best;
  for (const int row_warps_log2 : {3, 2}) {
    const int n_row_warps = 1 << row_warps_log2;
    const int64_t slot_bytes =
        small_gemm_slot_bytes(unit_bytes, n_row_warps, static_cast<int>(divide_up(tile_tokens, 8)));
    const int64_t n_slots = std::min(kMostSlots, of.shared_bytes / slot_bytes);
    if (n_slots < 2) {
      continue;
    }
    int64_t n_tiles = 0;
    for (const int64_t rows : of.part_rows) {
      n_tiles += divide_up(rows, 32 * n_row_warps);
    }
    const double load_ns = small_gemm_weight_bytes(unit_bytes, n_row_warps) / kBytesOfNs;
    const auto tokens = static_cast<double>(tile_tokens);
    const double item_ns =
        std::max(load_ns, kItemNs * n_row_warps / 8) + tokens * (kTokenNs * n_row_warps / 8 + 8);
    for (int64_t n_splits = 1; n_splits <= std::min({n_units, of.most_splits, kMostSplits});
         ++n_splits) {
      const int64_t n_blocks = std::min(most_blocks, n_tiles * n_splits);
      const auto rounds = static_cast<double>(divide_up(n_tiles * n_splits, n_blocks));
      const auto items = static_cast<double>(divide_up(n_units, n_splits));
      // Whoever reads the splits reads a row with one block.
      const double ns = kLaunchNs + rounds * (items * item_ns + kTileEndNs) +
                        static_cast<double>(n_splits * n_rows * 4) / 100;
      if (best.n_slots == 0 || ns < best.ns) {
        best = {row_warps_log2,
                static_cast<int>(n_slots),
                n_slots * slot_bytes,
                n_tiles,
                n_splits,
                static_cast<uint32_t>(n_blocks),
                static_cast<uint32_t>(n_token_tiles),
                ns};
      }
    }
  }
  return best;
}

MatvecRowsShape matvec_rows_shape(const TierProduct& of) {
  MatvecRowsShape best;
  const MatvecShared rings = matvec_shared(*of.type);
  if (of.n_tokens > kMostMatvecRowsTokens || rings.ring_bytes == 0) {
    return best;
  }
  for (const int64_t rows : of.part_rows) {
    best.n_tiles += divide_up(rows, quant::kUnitRows);
  }
  const int64_t n_units = quant::units_of(of.n_cols);
  const double unit_ns = std::max(static_cast<double>(kMatvecWarps * rings.unit_bytes) / kBytesOfNs,
                                  kUnitNs + matvec_rows_tiles(of.n_tokens) * kUnitTokensNs);
  for (int64_t n_splits = 1; n_splits <= std::min({n_units, of.most_splits, kMostSplits});
       ++n_splits) {
    const auto split_units = static_cast<int>(divide_up(n_units, n_splits));
    const int64_t shared_bytes =
        rings.ring_bytes +
        matvec_rows_own_bytes(split_units, of.n_tokens, rings.has_offset ? rings.group_elems : 0);
    if (shared_bytes > of.shared_bytes) {
      continue;
    }
    const MatvecSplit split = matvec_split(
        best.n_tiles, split_units, static_cast<int>(std::max<int64_t>(1, of.n_sm / n_splits)));
    const int64_t tiles_at_once =
        static_cast<int64_t>(split.n_blocks) * (kMatvecWarps / split.n_col_warps);
    const auto rounds = static_cast<double>(divide_up(best.n_tiles, tiles_at_once));
    const auto warp_units = static_cast<double>(divide_up(split_units, split.n_col_warps));
    const auto staged_bytes = static_cast<double>(of.n_tokens * split_units * quant::kUnitCols * 2);
    const double ns = kMatvecLaunchNs + staged_bytes / kStagedBytesOfNs +
                      rounds * (warp_units * unit_ns + kMatvecTileEndNs) +
                      static_cast<double>(n_splits * rows_of(of) * 4) / 100;
    if (best.n_col_warps == 0 || ns < best.ns) {
      best.n_col_warps = split.n_col_warps;
      best.shared_bytes = shared_bytes;
      best.n_splits = n_splits;
      best.n_blocks = split.n_blocks;
      best.ns = ns;
    }
  }
  return best;
}

TierChoice choose_prefill_tier(const TierCase& of) {
  if (of.use == FewTokensUse::kNever) {
    return {PrefillTier::kLibrary, "not wanted"};
  }
  if (!of.tensor_cores) {
    return {PrefillTier::kLibrary, "before sm_80 there are no tensor cores for it"};
  }
  if (of.product.type->block_elems == 1) {
    return {PrefillTier::kLibrary, "a plain type has nothing to decode"};
  }
  TierChoice choice;
  choice.matvec = matvec_rows_shape(of.product);
  double ns = choice.matvec.ns;
  if (choice.matvec.n_col_warps > 0) {
    choice.tier = PrefillTier::kMatvec;
  } else {
    if (of.product.n_tokens > (of.few_registers ? kMostMatvecRowsTokens : kMostFusedTokens)) {
      return {PrefillTier::kLibrary, "many tokens"};
    }
    choice.fused = of.few_registers ? SmallGemmShape{} : small_gemm_shape(of.product);
    if (choice.fused.n_slots == 0) {
      return {PrefillTier::kLibrary, "too little shared memory"};
    }
    choice.tier = PrefillTier::kFused;
    ns = choice.fused.ns;
  }
  if (of.use == FewTokensUse::kWhereFaster && ns >= library_ns(of.product, of.store)) {
    return {PrefillTier::kLibrary, "decoding takes longer"};
  }
  return choice;
}

std::string describe_tiers(std::span<const ProjectionGroup> groups, TierCase of) {
  const Weight* largest = nullptr;
  for (const ProjectionGroup& group : groups) {
    for (const Weight* weight : group.weights) {
      if (group.every_row && weight->type->block_elems > 1 &&
          (largest == nullptr ||
           weight->n_rows * weight->n_cols > largest->n_rows * largest->n_cols)) {
        largest = weight;
      }
    }
  }
  if (largest == nullptr) {
    return "cuBLAS alone: nothing to decode";
  }
  of.product.type = largest->type;
  of.product.part_rows = {&largest->n_rows, 1};
  of.product.n_cols = largest->n_cols;
  of.product.most_splits = kMostSplits;
  std::string tiers;
  int64_t last = 0;              // tokens of who is named last
  std::string_view why_library;  // for the fewest tokens it takes
  for (const auto& [tier, name] : {std::pair{PrefillTier::kMatvec, "matvec_rows"},
                                   std::pair{PrefillTier::kFused, "small_gemm"}}) {
    int64_t most = 0;
    for (of.product.n_tokens = 1; of.product.n_tokens <= kMostFusedTokens; ++of.product.n_tokens) {
      const TierChoice choice = choose_prefill_tier(of);
      most = choice.tier == tier ? of.product.n_tokens : most;
      if (choice.tier == PrefillTier::kLibrary && why_library.empty()) {
        why_library = choice.reason;
      }
    }
    if (most > last) {
      tiers += fmt::format("{} to {}{}, ", name, most, tiers.empty() ? " tokens" : "");
      last = most;
    }
  }
  return tiers.empty() ? fmt::format("cuBLAS alone: {}", why_library) : tiers + "cuBLAS beyond";
}

}  // namespace apr::cuda
