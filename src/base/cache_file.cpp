#include "base/cache_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
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

std::optional<std::string> read_cache_file(const fs::path& path, size_t most_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return std::nullopt;
  }
  std::array<char, 65536> piece;
  std::string text;
  struct stat info = {};
  bool may_go_on = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode), is_whole = false;
  while (may_go_on && !is_whole) {
    const ssize_t n_bytes = ::read(fd, piece.data(), piece.size());
    is_whole = n_bytes == 0;
    if (n_bytes > 0) {
      text.append(piece.data(), static_cast<size_t>(n_bytes));
    }
    may_go_on = (n_bytes >= 0 || errno == EINTR) && text.size() <= most_bytes;
  }
  ::close(fd);
  return is_whole && may_go_on ? std::optional(std::move(text)) : std::nullopt;
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
