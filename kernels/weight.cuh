// A weight matrix in device memory, and the block a kernel reads from it.
#pragma once

#include "params.h"
#include "quant/device.cuh"

namespace apr {

// Block `block_idx` of row `row`; block_idx < n_cols / kBlockElems.
template <class T, bool kPlanes>
APR_DEVICE auto weight_block(const WeightRef& w, int64_t row, int block_idx) {
  if constexpr (kPlanes) {
    return quant::planes_block<T>(w.data, w.n_cols, row, block_idx);
  } else {
    const int64_t idx = row * quant::row_stride(w.n_cols / T::kBlockElems, 1) + block_idx;
    return quant::RawBlock<T>{w.data + idx * T::kBlockBytes};
  }
}

// Weights [8 * octet, 8 * octet + 8) of a row, as the scalar reference gives them.
template <class T, bool kPlanes>
APR_DEVICE void weight_octet(const WeightRef& w, int64_t row, int octet, float (&out)[8]) {
  if constexpr (T::kBlockElems == 1) {
    T::decode8(w.data + (row * quant::row_stride(w.n_cols, 8) + 8 * octet) * T::kBlockBytes, out);
  } else {
    constexpr int kOctets = T::kBlockElems / 8;
    quant::decode8<T>(weight_block<T, kPlanes>(w, row, octet / kOctets), octet % kOctets, out);
  }
}

}  // namespace apr
