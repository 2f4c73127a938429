// The one loop over blocks: the type table calls it, and the SIMD kernels of the CPU inline it.
#pragma once

#include <cstdint>

#include "platform.cuh"

namespace apr::quant {

// Decodes `n_blocks` blocks of type T; blocks: [n_blocks, T::kBlockBytes], any alignment; out:
// [n_blocks, T::kBlockElems] f32, not overlapping. Always inlined: translation units compiled for
// different instruction sets must not share one copy.
template <class T>
APR_INLINE void dequantize_blocks(const uint8_t* __restrict__ blocks, int64_t n_blocks,
                                  float* __restrict__ out) {
  for (int64_t block_idx = 0; block_idx < n_blocks; ++block_idx) {
    T::decode_reference(blocks + block_idx * T::kBlockBytes, out + block_idx * T::kBlockElems);
  }
}

}  // namespace apr::quant
