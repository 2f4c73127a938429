// Memory of one parse or one rendering: everything is freed at once, and never more than the bound
// is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace apr::jinja {

// A failure while a template is evaluated, without its line; the interpreter adds the line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bump allocator. Objects are trivially destructible: cycles between values need no care.
class Arena {
 public:
  // `used_bytes` of the bound are taken already.
  explicit Arena(int64_t max_bytes, int64_t used_bytes = 0)
      : used_bytes_(used_bytes), max_bytes_(max_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns `size_bytes` bytes aligned to 16; throws Fault naming the bound when it is exceeded.
  void* allocate(size_t size_bytes);

  // Counts heap memory outside of the arena; throws Fault as `allocate`.
  void charge(size_t size_bytes);

  int64_t used_bytes() const { return used_bytes_; }

  template <typename T>
  T* create(T value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T))) T(std::move(value));
  }

  // An array of `n_elems` default-initialised elements.
  template <typename T>
  T* create_array(size_t n_elems) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (n_elems > kMaxArrayBytes / sizeof(T)) charge(kMaxArrayBytes);
    T* elems = static_cast<T*>(allocate(n_elems * sizeof(T)));
    std::uninitialized_value_construct_n(elems, n_elems);
    return elems;
  }

  template <typename T>
  std::span<T> copy_array(const std::vector<T>& source) {
    T* elems = create_array<T>(source.size());
    std::copy(source.begin(), source.end(), elems);
    return {elems, source.size()};
  }

  std::string_view copy_text(std::string_view text) {
    if (text.empty()) return {};
    char* bytes = static_cast<char*>(allocate(text.size()));
    std::memcpy(bytes, text.data(), text.size());
    return {bytes, text.size()};
  }

 private:
  static constexpr size_t kMaxArrayBytes = size_t{1} << 62;  // above any bound

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_bytes_ = 0;      // of the last block
  size_t block_bytes_ = 4096;  // size of the next block
  int64_t used_bytes_;         // blocks and charges
  int64_t max_bytes_;
};

}  // namespace apr::jinja
