// Compiled kernels on disk, so that a second start compiles nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace apr::cuda {

// Machine code of one compilation.
struct CompiledKernel {
  std::vector<std::byte> cubin;
  std::vector<std::string> lowered_names;  // one for each name expression, in their order
  std::string log;                         // the compiler's words: warnings, registers, spills
};

// One file for each entry, named after its key and written to a temporary name first: readers and
// writers of any number of processes see whole entries only. Threads may share one object.
class KernelCache {
 public:
  // An empty `dir`: no cache. The folder is made at the first store.
  explicit KernelCache(std::filesystem::path dir) : dir_(std::move(dir)) {}

  // The entry of `key` (a file name), or nothing: absent, unreadable, or damaged, which its
  // checksum shows.
  std::optional<CompiledKernel> find(const std::string& key) const;

  // Never throws: a folder that cannot be written is noted once, and the program goes on without.
  void store(const std::string& key, const CompiledKernel& kernel);

  const std::filesystem::path& dir() const { return dir_; }

 private:
  void note_failure(const std::string& reason);

  std::filesystem::path dir_;
  std::once_flag noted_;
};

// $XDG_CACHE_HOME/apr, else $HOME/.cache/apr; empty where neither is an absolute path.
std::filesystem::path kernel_cache_dir();

struct CacheUse {
  int64_t n_entries = 0;
  uint64_t size_bytes = 0;
  bool writable = false;
};

// What lies in `dir` now; nothing where it is absent, which counts as writable if it can be made.
CacheUse kernel_cache_use(const std::filesystem::path& dir);

}  // namespace apr::cuda
