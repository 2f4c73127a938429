// Files that later runs find again.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace apr {

// $XDG_CACHE_HOME/apr, else $HOME/.cache/apr; empty where neither is an absolute path.
std::filesystem::path cache_dir();

// Makes the folder, writes `content` under a temporary name and renames it: readers and writers of
// any number of processes see whole files only. Answers why not; empty where it is done.
std::string write_whole_file(const std::filesystem::path& path, std::string_view content);

}  // namespace apr
