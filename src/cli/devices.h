// The GPUs of this machine, for people and scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/options.h"
#include "cuda/device.h"

namespace apr::cli {

// [{"ordinal", "name", "architecture", "multiprocessors", "total_bytes"}, ...]
nlohmann::ordered_json devices_json(const std::vector<cuda::DeviceFacts>& devices);

// The answer of --list-devices, one device a line or {"devices": [...]}. Throws as
// cuda::list_devices.
void print_devices(OutputFormat format);

}  // namespace apr::cli
