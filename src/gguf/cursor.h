// Reads the head of a GGUF image (header, metadata, tensor table) front to back; every step is
// checked against the end of the image before a byte is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace apr {

// Real heads are below 20 MB (a vocabulary of 250,000 tokens with its merges is 11 MB); this bound
// keeps the time and the pages that a hostile file can cost small.
inline constexpr uint64_t kMaxHeadBytes = 64ull << 20;

// What is being read, for messages: "the header", "metadata key 3 of 20", "tensor output.weight".
struct CursorSubject {
  const char* kind = "the header";
  std::string_view name = {};   // once it is known
  uint64_t idx = 0, count = 0;  // until then, where count > 0

  std::string text() const;
};

class Cursor {
 public:
  Cursor(std::span<const std::byte> image, const std::string& file_name)
      : image_(image), file_name_(file_name) {}

  uint64_t offset_bytes() const { return offset_bytes_; }
  uint64_t remaining_bytes() const { return image_.size() - offset_bytes_; }
  void set_subject(const CursorSubject& subject) { subject_ = subject; }

  // The next n_bytes. Throws kInvalidFormat ("file ends at byte X, SUBJECT needs Y") where the
  // image is shorter, or where they lie past kMaxHeadBytes.
  std::span<const std::byte> take(uint64_t n_bytes) {
    if (n_bytes > remaining_bytes() || offset_bytes_ + n_bytes > kMaxHeadBytes) {
      fail_past_end(n_bytes);
    }
    const auto bytes = image_.subspan(offset_bytes_, n_bytes);
    offset_bytes_ += n_bytes;
    return bytes;
  }

  // The next value of a fixed-size type, little endian.
  template <typename T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  // Throws kInvalidFormat: "FILE: SUBJECT: `what` at byte `at_byte`".
  [[noreturn]] void fail(uint64_t at_byte, const std::string& what) const;

  // Throws kInvalidFormat: "FILE: file ends at byte X, SUBJECT needs `needed_byte`".
  [[noreturn]] void fail_truncated(uint64_t needed_byte) const;

 private:
  [[noreturn]] void fail_past_end(uint64_t n_bytes) const;

  std::span<const std::byte> image_;
  const std::string& file_name_;
  uint64_t offset_bytes_ = 0;
  CursorSubject subject_;
};

}  // namespace apr
