// Who multiplies few tokens of a prefill, and the shape of its launches: plain host code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cuda/prefill_gemm.h"
#include "cuda/projection_groups.h"

namespace apr::cuda {

// Matrices of one type that have one input.
struct TierProduct {
  const QuantType* type = nullptr;
  std::span<const int64_t> part_rows = {};  // of each
  int64_t n_cols = 0, n_tokens = 0;
  int n_sm = 1;
  int64_t shared_bytes = 0;  // that a block may ask for
  int64_t most_splits = 1;   // of the columns, that there is room for
};

struct SmallGemmShape {
  int row_warps_log2 = 3, n_slots = 0;  // no slots: no room in shared memory
  int64_t shared_bytes = 0;
  int64_t n_tiles = 0;  // of rows, of all parts
  int64_t n_splits = 1;
  uint32_t n_blocks = 0;  // for each token tile
  uint32_t n_token_tiles = 0;
  double ns = 0.0;  // that it takes on an H200, roughly
};

// How a launch of small_gemm multiplies them.
SmallGemmShape small_gemm_shape(const TierProduct& of);

struct MatvecRowsShape {
  int n_col_warps = 0;  // none: too many tokens, or no room in shared memory
  int64_t shared_bytes = 0;
  int64_t n_tiles = 0;  // of rows, of all parts
  int64_t n_splits = 1;
  uint32_t n_blocks = 0;  // of a split
  double ns = 0.0;        // that it takes on an H200, roughly
};

// How a launch of matvec_rows multiplies them.
MatvecRowsShape matvec_rows_shape(const TierProduct& of);

// Who multiplies.
enum class PrefillTier {
  kMatvec,   // matvec_rows
  kFused,    // small_gemm
  kLibrary,  // cuBLAS
};

enum class FewTokensUse { kNever, kWhereFaster, kWherePossible };

constexpr int64_t kMostFusedTokens = 128;

struct TierCase {
  TierProduct product;
  HalfStore store = HalfStore::kCached;
  bool tensor_cores = true;  // sm_80 and later
  FewTokensUse use = FewTokensUse::kWhereFaster;
  // From sm_100 on ptxas has too few registers for small_gemm.
  bool few_registers = false;
};

struct TierChoice {
  PrefillTier tier = PrefillTier::kLibrary;
  std::string_view reason = {};  // why the library
  MatvecRowsShape matvec = {};
  SmallGemmShape fused = {};
};

// The tier of one product of mode f16: the file's blocks, decoded by each block of threads for its
// tokens, against 16-bit weights, which are read, or made first and then read.
TierChoice choose_prefill_tier(const TierCase& of);

// Up to how many tokens who multiplies the largest matrix, for people and JSON: "matvec_rows to 16
// tokens, small_gemm to 64, cuBLAS beyond", or why cuBLAS alone; others may have other limits.
// `of`: what does not depend on the matrix.
std::string describe_tiers(std::span<const ProjectionGroup> groups, TierCase of);

}  // namespace apr::cuda
