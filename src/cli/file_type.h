// What the weights of a file are stored as, in a few words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apr/gguf.h"

namespace apr::cli {

// The name of a value of general.file_type, as llama.cpp prints it: "Q4_K - Medium" of 15; empty
// where llama.cpp has none.
std::string_view file_type_name(uint64_t file_type);

// What the file says in general.file_type; where it says nothing that has a name, the type that
// most bytes of its tensors have. Empty without tensors.
std::string weight_types(const GgufFile& file);

}  // namespace apr::cli
