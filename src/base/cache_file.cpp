#include "base/cache_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

namespace apr {

namespace fs = std::filesystem;

fs::path cache_dir() {
  for (const auto& [variable, inner] :
       {std::pair{"XDG_CACHE_HOME", "apr"}, std::pair{"HOME", ".cache/apr"}}) {
    const char* value = std::getenv(variable);
    // The XDG rules have a relative path ignored.
    if (value != nullptr && fs::path(value).is_absolute()) {
      return fs::path(value) / inner;
    }
  }
  return {};
}

std::string write_whole_file(const fs::path& path, std::string_view content) {
  static std::atomic<uint64_t> counter{0};
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    return error.message();
  }
  fs::path temporary = path;
  temporary += fmt::format(".{}.{}.tmp", ::getpid(), counter++);
  std::ofstream file(temporary, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) {
    const std::string reason = std::strerror(errno);
    fs::remove(temporary, error);
    return reason;
  }
  fs::rename(temporary, path, error);
  if (error) {
    const std::string reason = error.message();
    fs::remove(temporary, error);
    return reason;
  }
  return {};
}

}  // namespace apr
