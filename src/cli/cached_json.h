// JSON that earlier runs left, in a folder where anything may lie by now.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace apr::cli {

// The object in a cache's file; null where there is none (see read_cache_file). What nests deeper
// than ours do is left out: copies of it could take more stack than there is.
nlohmann::ordered_json read_cached_json(const std::filesystem::path& path);

}  // namespace apr::cli
