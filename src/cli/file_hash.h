// SHA-256 of whole files, remembered as long as a file stays the same.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace apr::cli {

using HashProgress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Of one file, 64 hexadecimal digits. A file whose path, device, inode, size and times of
// modification and of change are those of an earlier call is not read again; what is younger than
// two seconds is not remembered, a further write might leave its times as they are. Throws
// kFileNotFound, kIo; on_progress (may be empty) may throw to end it.
std::string file_sha256(const std::filesystem::path& path, const HashProgress& on_progress);

// Of a model: its file's, or the hash of its parts' hashes, each in a line.
std::string files_sha256(std::span<const std::string> paths, const HashProgress& on_progress);

// Of the running program's file: "exe-sha256:<hex>". Throws as file_sha256.
std::string build_id();

}  // namespace apr::cli
