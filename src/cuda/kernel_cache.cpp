#include "cuda/kernel_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/cache_file.h"
#include "base/log.h"
#include "cuda/content_hash.h"

namespace apr::cuda {
namespace {

namespace fs = std::filesystem;

// An entry is text fields "<size>:<bytes>": magic, cubin, log, lowered names; the checksum of what
// stands before it is the last.
constexpr std::string_view kMagic = "apr kernel 1";
constexpr std::string_view kSuffix = ".cubin";

void put(std::string& out, std::string_view field) {
  out += fmt::format("{}:", field.size());
  out += field;
}

// Takes the next field off `in`, or answers nothing.
std::optional<std::string_view> take(std::string_view& in) {
  size_t size = 0;
  const auto [end, error] = std::from_chars(in.data(), in.data() + in.size(), size);
  const size_t digits = static_cast<size_t>(end - in.data());
  if (error != std::errc() || digits >= in.size() || in[digits] != ':' ||
      size > in.size() - digits - 1) {
    return std::nullopt;
  }
  const std::string_view field = in.substr(digits + 1, size);
  in.remove_prefix(digits + 1 + size);
  return field;
}

std::string checksum(std::string_view text) {
  ContentHash hash;
  hash.add(text);
  return hash.hex();
}

std::string serialise(const CompiledKernel& kernel) {
  std::string out;
  put(out, kMagic);
  put(out, {reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size()});
  put(out, kernel.log);
  for (const std::string& name : kernel.lowered_names) {
    put(out, name);
  }
  put(out, checksum(out));
  return out;
}

std::optional<CompiledKernel> parse(std::string_view text) {
  std::vector<std::string_view> fields;
  std::string_view rest = text;
  size_t checked_bytes = 0;
  while (!rest.empty()) {
    checked_bytes = text.size() - rest.size();
    const auto field = take(rest);
    if (!field) {
      return std::nullopt;
    }
    fields.push_back(*field);
  }
  if (fields.size() < 4 || fields.front() != kMagic ||
      fields.back() != checksum(text.substr(0, checked_bytes))) {
    return std::nullopt;
  }
  CompiledKernel kernel;
  const auto* cubin = reinterpret_cast<const std::byte*>(fields[1].data());
  kernel.cubin.assign(cubin, cubin + fields[1].size());
  kernel.log = fields[2];
  kernel.lowered_names.assign(fields.begin() + 3, fields.end() - 1);
  return kernel;
}

// The nearest folder above `path`, or itself, that exists.
fs::path existing_parent(fs::path path) {
  std::error_code error;
  while (!path.empty() && !fs::exists(path, error) && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

}  // namespace

std::optional<CompiledKernel> KernelCache::find(const std::string& key) const {
  if (dir_.empty()) {
    return std::nullopt;
  }
  constexpr size_t kMostBytes = size_t{256} << 20;  // hundreds of times what the largest has
  const auto text = read_cache_file(dir_ / (key + std::string(kSuffix)), kMostBytes);
  return text ? parse(*text) : std::nullopt;
}

void KernelCache::store(const std::string& key, const CompiledKernel& kernel) {
  if (dir_.empty()) {
    return;
  }
  const std::string failure =
      write_whole_file(dir_ / (key + std::string(kSuffix)), serialise(kernel));
  if (!failure.empty()) {
    note_failure(failure);
  }
}

void KernelCache::note_failure(const std::string& reason) {
  std::call_once(noted_, [&] {
    log_note(fmt::format("kernel cache {}: {}; kernels are compiled again at each start",
                         dir_.string(), reason));
  });
}

fs::path kernel_cache_dir() {
  return cache_dir();
}

CacheUse kernel_cache_use(const fs::path& dir) {
  CacheUse use;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == kSuffix) {
      std::error_code size_error;
      const uint64_t size_bytes = it->file_size(size_error);
      ++use.n_entries;
      use.size_bytes += size_error ? 0 : size_bytes;
    }
  }
  use.writable = !dir.empty() && ::access(existing_parent(dir).c_str(), W_OK | X_OK) == 0;
  return use;
}

}  // namespace apr::cuda
