// The shared memory of small_gemm, laid out alike by host and device: a ring of slots, each with
// the weights and the x of 256 columns.
#pragma once

#include "quant/device.cuh"

namespace apr {

constexpr int kSmallGemmWarps = 16;   // of a block
constexpr int kSmallGemmTokens = 64;  // of a block at most

// Of a token's 256 columns: 32 more than a multiple of 128, so that loads of 8 bytes by four lanes
// from each of four tokens meet all banks once.
constexpr int kSmallGemmXBytes = quant::kUnitCols * 2 + 32;

APR_DEVICE constexpr int small_gemm_weight_bytes(int unit_bytes, int n_row_warps) {
  return n_row_warps * 2 * unit_bytes;
}

// Of a slot; tokens in tiles of 8.
APR_DEVICE constexpr int small_gemm_slot_bytes(int unit_bytes, int n_row_warps, int n_token_tiles) {
  return small_gemm_weight_bytes(unit_bytes, n_row_warps) + n_token_tiles * 8 * kSmallGemmXBytes;
}

}  // namespace apr
