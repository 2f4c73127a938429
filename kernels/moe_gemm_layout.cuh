// The shared memory of moe_gemm, laid out alike by host and device: two tiles of x, two of weights
// in f16, two of weights as they are.
#pragma once

#include "quant/device.cuh"

namespace apr {

constexpr int kMoeGemmPairs = 128;  // of a block
constexpr int kMoeGemmRows = 64;    // of weights, of a block
constexpr int kMoeGemmDepth = 64;   // columns of a step
constexpr int kMoeGemmWarps = 8;    // four along the pairs by two along the rows

constexpr int kMoeXBytes = kMoeGemmPairs * kMoeGemmDepth * 2;  // of one tile
constexpr int kMoeWBytes = kMoeGemmRows * kMoeGemmDepth * 2;

// Units of a block's rows, 256 columns.
template <class T>
constexpr int moe_quant_bytes() {
  return kMoeGemmRows / quant::kUnitRows * quant::unit_bytes<T>();
}

template <class T>
constexpr int moe_gemm_shared_bytes() {
  return 2 * (kMoeXBytes + kMoeWBytes + moe_quant_bytes<T>());
}

}  // namespace apr
