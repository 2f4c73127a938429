// JSON documents as values.
#pragma once

#include <nlohmann/json.hpp>

#include "tokenizer/jinja/runtime.h"

namespace apr::jinja {

// The value of a JSON document, marked as input; strings refer to `json`. Throws Fault for what has
// no value: integers above 64 bits with sign, binary data, deep nesting.
Value from_json(Runtime& rt, const nlohmann::ordered_json& json);

}  // namespace apr::jinja
