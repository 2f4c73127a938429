#include "gguf/text.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace apr {
namespace {

constexpr size_t kMaxShownBytes = 120;

// Bytes of the UTF-8 sequence that `text` starts with, or 0 where it starts with none; the code
// point goes to `code_point`. Ranges of RFC 3629.
size_t sequence_bytes(std::string_view text, uint32_t& code_point) {
  const auto byte_at = [&](size_t idx) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[idx]));
  };
  const uint32_t lead = byte_at(0);
  if (lead < 0x80) {
    code_point = lead;
    return 1;
  }
  const size_t n_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < n_bytes) {
    return 0;
  }
  code_point = lead & (0x7Fu >> n_bytes);
  for (size_t idx = 1; idx < n_bytes; ++idx) {
    if ((byte_at(idx) & 0xC0) != 0x80) {
      return 0;
    }
    code_point = code_point << 6 | (byte_at(idx) & 0x3F);
  }
  const uint32_t smallest = n_bytes == 4 ? 0x10000 : n_bytes == 3 ? 0x800 : 0x80;
  const bool is_surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  return code_point < smallest || code_point > 0x10FFFF || is_surrogate ? 0 : n_bytes;
}

}  // namespace

bool is_utf8(std::string_view text) {
  uint32_t code_point = 0;
  while (!text.empty()) {
    const size_t n_bytes = sequence_bytes(text, code_point);
    if (n_bytes == 0) {
      return false;
    }
    text.remove_prefix(n_bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    if (shown.size() > kMaxShownBytes) {
      return shown + "...";
    }
    uint32_t code_point = 0;
    const size_t n_bytes = sequence_bytes(text, code_point);
    const bool is_control = code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
    if (n_bytes == 0 || is_control) {
      const size_t n_escaped = n_bytes == 0 ? 1 : n_bytes;
      for (const char byte : text.substr(0, n_escaped)) {
        shown += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
      }
      text.remove_prefix(n_escaped);
    } else {
      shown += text.substr(0, n_bytes);
      text.remove_prefix(n_bytes);
    }
  }
  return shown;
}

}  // namespace apr
