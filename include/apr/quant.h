// The table of tensor types: one row per type, one file per type under kernels/quant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apr/gguf.h"

namespace apr {

// Decodes `n_blocks` whole blocks; blocks: [n_blocks, block_bytes]; out: [n_blocks, block_elems]
// f32. Any alignment of `blocks`.
using DequantizeFn = void (*)(const std::byte* blocks, int64_t n_blocks, float* out);

struct QuantType {
  uint32_t id;            // ggml type id
  std::string_view name;  // "Q4_K"
  int block_elems;
  int block_bytes;
  DequantizeFn dequantize;  // the scalar reference: the oracle of every other decoder

  // Bytes of a row of n_elems (a multiple of block_elems).
  int64_t row_bytes(int64_t n_elems) const { return n_elems / block_elems * block_bytes; }
};

// All supported types, ascending by id.
std::span<const QuantType> quant_types();

// The row of a ggml type id / of a type name; null where there is none.
const QuantType* find_quant_type(uint32_t id);
const QuantType* find_quant_type(std::string_view name);

// Adapters for GgufFile::open.
std::optional<TypeLayout> quant_type_layout(uint32_t id);
std::string quant_type_label(uint32_t id);  // "12 (Q4_K)", "138 (ik_llama.cpp IQ3_K)", "999"

}  // namespace apr
