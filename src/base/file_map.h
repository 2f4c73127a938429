// A read-only memory mapping of a whole file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace apr {

class FileMap {
 public:
  // Maps `path`. Throws kFileNotFound (absent, not a regular file), kIo. An empty file maps to an
  // empty span.
  explicit FileMap(const std::filesystem::path& path);
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  ~FileMap();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace apr
