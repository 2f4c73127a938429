// Which of a prefill's products small_gemm takes, and the shape of its launches: plain host code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cuda/prefill_gemm.h"
#include "cuda/projection_groups.h"

namespace apr::cuda {

// Who multiplies.
enum class PrefillTier {
  kFused,    // small_gemm
  kLibrary,  // cuBLAS
};

struct TierCase {
  const QuantType* type = nullptr;
  int64_t n_tokens = 0;
  HalfStore store = HalfStore::kCached;
  bool tensor_cores = true;  // sm_80 and later
  int64_t shared_bytes = 0;  // that a block may ask for
};

struct TierChoice {
  PrefillTier tier = PrefillTier::kFused;
  std::string_view reason = {};  // why not fused
};

// Tokens of a product up to which small_gemm is faster: than reading 16-bit weights, and than
// making them first.
constexpr int64_t kMostFusedTokens = 64, kMostFusedTokensStreamed = 128;

// The tier of one product of mode f16.
TierChoice choose_prefill_tier(const TierCase& of);

// What multiplies how many tokens, for people and JSON: "small_gemm to 64 tokens, cuBLAS beyond",
// or why cuBLAS alone.
std::string describe_tiers(std::span<const ProjectionGroup> groups, HalfStore store,
                           bool tensor_cores, int64_t shared_bytes);

struct SmallGemmShape {
  int row_warps_log2 = 3, n_slots = 0;  // no slots: no room in shared memory
  int64_t shared_bytes = 0;
  int64_t n_tiles = 0;    // of rows, of all parts
  uint32_t n_blocks = 0;  // for each token tile
  uint32_t n_token_tiles = 0;
};

// How a launch multiplies matrices of one type, of part_rows rows each.
SmallGemmShape small_gemm_shape(const QuantType& type, std::span<const int64_t> part_rows,
                                int64_t n_cols, int64_t n_tokens, int n_sm, int64_t shared_bytes);

// Bytes of what SmallGemm allocates.
struct SmallGemmSizes {
  uint64_t partials = 0, arrived = 0;
};
SmallGemmSizes small_gemm_sizes(std::span<const ProjectionGroup> groups, bool tensor_cores,
                                int n_sm);

}  // namespace apr::cuda
