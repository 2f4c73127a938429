#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace apr {
namespace {

constexpr size_t kAlphabetEnd = 256 + 68;  // one past the highest code point used

constexpr bool stands_for_itself(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The byte of each code point; -1 where it has none.
constexpr std::array<int16_t, kAlphabetEnd> make_table() {
  std::array<int16_t, kAlphabetEnd> table{};
  size_t next = 256;
  for (size_t byte = 0; byte < 256; ++byte) table[byte] = -1;
  for (size_t byte = 0; byte < 256; ++byte) {
    table[stands_for_itself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr std::array<int16_t, kAlphabetEnd> kByteOf = make_table();

}  // namespace

bool append_alphabet_bytes(std::string_view text, std::string& out) {
  const size_t size_before = out.size();
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    const char32_t code_point = step.status == Utf8Status::kValid
                                    ? decode_utf8(text, pos, step.n_bytes)
                                    : char32_t{kAlphabetEnd};
    if (code_point >= kAlphabetEnd || kByteOf[code_point] < 0) {
      out.resize(size_before);
      return false;
    }
    out.push_back(static_cast<char>(kByteOf[code_point]));
    pos += step.n_bytes;
  }
  return true;
}

}  // namespace apr
