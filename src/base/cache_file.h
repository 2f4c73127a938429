// Files that later runs find again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace apr {

// $XDG_CACHE_HOME/apr, else $HOME/.cache/apr; empty where neither is an absolute path.
std::filesystem::path cache_dir();

// What a cache holds under this name; nothing where that is no regular file (a pipe would be waited
// for), has more than `most_bytes` or cannot be read.
std::optional<std::string> read_cache_file(const std::filesystem::path& path,
                                           size_t most_bytes = size_t{1} << 20);

// Makes the folder, writes `content` under a temporary name and renames it: readers and writers of
// any number of processes see whole files only. Answers why not; empty where it is done.
std::string write_whole_file(const std::filesystem::path& path, std::string_view content);

}  // namespace apr
