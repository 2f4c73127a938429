// Facts about the element types of metadata values.
#pragma once

#include <cstdint>

#include "apr/gguf.h"

namespace apr {

inline constexpr uint32_t kNumGgufValueTypes = 13;  // ids 0..12

// "u32", "string", "array"; `type` is one of the 13.
const char* gguf_value_type_name(GgufValueType type);

// Bytes of one value of a fixed-size type; 0 for strings and arrays.
uint64_t gguf_value_bytes(GgufValueType type);

}  // namespace apr
