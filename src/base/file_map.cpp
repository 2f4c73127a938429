#include "base/file_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "apr/error.h"

namespace apr {
namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

}  // namespace

FileMap::FileMap(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that nobody writes must not wait; it means nothing for files.
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const ErrorCode code =
        errno == ENOENT || errno == ENOTDIR ? ErrorCode::kFileNotFound : ErrorCode::kIo;
    throw Error(code, fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  }
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot stat {}: {}", path.string(), std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kFileNotFound, fmt::format("{} is not a regular file", path.string()));
  }
  const size_t size_bytes = static_cast<size_t>(info.st_size);
  if (size_bytes == 0) {
    return;
  }
  void* data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorCode::kIo, fmt::format("cannot map {} ({} bytes): {}", path.string(),
                                            size_bytes, std::strerror(errno)));
  }
  bytes_ = {static_cast<const std::byte*>(data), size_bytes};
}

FileMap::FileMap(FileMap&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

FileMap::~FileMap() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace apr
