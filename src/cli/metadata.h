// The metadata of a GGUF file as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apr/gguf.h"

namespace apr::cli {

// Every key with its value; arrays above 64 elements as {"type", "count", "first"}.
nlohmann::ordered_json metadata_json(const GgufFile& file);

// The double that prints as `value` does in f32: 1e-06, not 9.999999974752427e-07.
double shortest(float value);

// A value in one line of at most about 100 characters.
std::string compact(const nlohmann::ordered_json& value);

}  // namespace apr::cli
