// Decoding of weight rows for this instruction set.
#pragma once

#include "cpu/fast/isa/simd.h"

namespace apr::cpu::fast::APR_CPU_ISA {

// Decodes n_blocks blocks of each of n_rows rows, with the bits of the type's scalar reference.
// w: the first row's first block, rows row_bytes apart; out: [n_rows, out_stride] f32.
using DecodeRowsFn = void (*)(const uint8_t* w, int64_t row_bytes, int64_t n_rows, int64_t n_blocks,
                              float* out, int64_t out_stride);

// The decoder of a ggml type id of the type table.
DecodeRowsFn decoder_of(uint32_t type_id);

// Every block divides this number of elements.
constexpr int kDecodeTileCols = 256;

// Decodes n_blocks consecutive blocks of a type: by the reference's loop, compiled for this
// instruction set, where no specialisation (decode_<isa>.h) exists.
template <class T>
struct BlockDecoder {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    for (int64_t block = 0; block < n_blocks; ++block) {
      T::decode_reference(blocks + block * T::kBlockBytes, out + block * T::kBlockElems);
    }
  }
};

}  // namespace apr::cpu::fast::APR_CPU_ISA
