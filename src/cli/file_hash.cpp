#include "cli/file_hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apr/error.h"
#include "base/cache_file.h"
#include "base/sha256.h"
#include "cli/cached_json.h"

namespace apr::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kNsPerS = 1'000'000'000;

int64_t nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * kNsPerS + time.tv_nsec;
}

// What a file is known by, beside its path, after which its entry is named.
Json identity(const struct stat& info) {
  return {{"device", static_cast<uint64_t>(info.st_dev)},
          {"inode", static_cast<uint64_t>(info.st_ino)},
          {"size_bytes", static_cast<uint64_t>(info.st_size)},
          {"modified_ns", nanoseconds(info.st_mtim)},
          {"changed_ns", nanoseconds(info.st_ctim)}};
}

bool is_settled(const struct stat& info) {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now) - std::max(nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)) >
         2 * kNsPerS;
}

std::string sha256_of(const std::string& text) {
  Sha256 sha;
  sha.add(std::as_bytes(std::span(text)));
  return sha.hex();
}

std::optional<std::string> remembered(const fs::path& entry, const Json& identity) {
  const Json json = read_cached_json(entry);
  if (!json.is_object() || !json.contains("file") || json["file"] != identity ||
      !json.contains("sha256") || !json["sha256"].is_string()) {
    return std::nullopt;
  }
  constexpr size_t kDigits = 64;
  const auto& sha256 = json["sha256"].get_ref<const std::string&>();
  const bool is_hash =
      sha256.size() == kDigits && sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_hash ? std::optional(sha256) : std::nullopt;  // it will name a file
}

[[noreturn]] void fail(ErrorCode code, const fs::path& path) {
  throw Error(code, fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
}

class Descriptor {
 public:
  explicit Descriptor(const fs::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) {
      fail(errno == ENOENT ? ErrorCode::kFileNotFound : ErrorCode::kIo, path);
    }
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::string file_sha256(const fs::path& path, const HashProgress& on_progress) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const Descriptor file(path);
  struct stat before = {};
  if (::fstat(file.get(), &before) != 0) {
    fail(ErrorCode::kIo, path);
  }
  const Json known_by = identity(before);
  const fs::path dir = cache_dir();
  const fs::path entry =
      dir.empty() ? fs::path() : dir / "hashes" / (sha256_of(absolute.string()) + ".json");
  if (const auto found = entry.empty() ? std::nullopt : remembered(entry, known_by)) {
    return *found;
  }
  constexpr size_t kPieceBytes = size_t{4} << 20;
  const auto piece = std::make_unique<std::byte[]>(kPieceBytes);
  Sha256 sha;
  for (uint64_t done_bytes = 0;;) {
    const ssize_t n_bytes = ::read(file.get(), piece.get(), kPieceBytes);
    if (n_bytes < 0 && errno == EINTR) {
      continue;
    }
    if (n_bytes < 0) {
      fail(ErrorCode::kIo, path);
    }
    if (n_bytes == 0) {
      break;
    }
    sha.add({piece.get(), static_cast<size_t>(n_bytes)});
    done_bytes += static_cast<uint64_t>(n_bytes);
    if (on_progress) {
      on_progress(done_bytes, static_cast<uint64_t>(before.st_size));
    }
  }
  const std::string hash = sha.hex();
  struct stat after = {};
  if (!entry.empty() && ::fstat(file.get(), &after) == 0 && identity(after) == known_by &&
      is_settled(after)) {
    // Where it cannot be kept the file is read again next time.
    static_cast<void>(
        write_whole_file(entry, Json{{"file", known_by}, {"sha256", hash}}.dump() + "\n"));
  }
  return hash;
}

std::string files_sha256(std::span<const std::string> paths, const HashProgress& on_progress) {
  if (paths.size() == 1) {
    return file_sha256(paths[0], on_progress);
  }
  std::string lines;
  for (const std::string& path : paths) {
    lines += file_sha256(path, on_progress) + "\n";
  }
  return sha256_of(lines);
}

std::string build_id() {
  // Not the path behind it, where another build may lie by now.
  return "exe-sha256:" + file_sha256("/proc/self/exe", {});
}

}  // namespace apr::cli
