#include "gguf/cursor.h"

#include <fmt/format.h>

#include <limits>

#include "apr/error.h"
#include "gguf/text.h"

namespace apr {

std::string CursorSubject::text() const {
  if (!name.empty()) {
    return fmt::format("{} {}", kind, printable(name));
  }
  return count > 0 ? fmt::format("{} {} of {}", kind, idx + 1, count) : kind;
}

void Cursor::fail(uint64_t at_byte, const std::string& what) const {
  throw Error(ErrorCode::kInvalidFormat,
              fmt::format("{}: {} at byte {}: {}", file_name_, subject_.text(), at_byte, what));
}

void Cursor::fail_truncated(uint64_t needed_byte) const {
  throw Error(ErrorCode::kInvalidFormat,
              fmt::format("{}: file ends at byte {}, {} needs {}", file_name_, image_.size(),
                          subject_.text(), needed_byte));
}

void Cursor::fail_past_end(uint64_t n_bytes) const {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const uint64_t needed_byte = n_bytes > kMax - offset_bytes_ ? kMax : offset_bytes_ + n_bytes;
  if (n_bytes > remaining_bytes()) {
    fail_truncated(needed_byte);
  }
  fail(offset_bytes_, fmt::format("expected metadata and tensor table within the first {} bytes, "
                                  "found them to reach byte {}",
                                  kMaxHeadBytes, needed_byte));
}

}  // namespace apr
