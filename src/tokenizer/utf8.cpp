#include "tokenizer/utf8.h"

#include <cstring>

namespace apr {
namespace {

// The bytes allowed after a lead byte: how many, and the range of the first of them.
struct LeadRow {
  uint8_t n_more;  // 0: not a lead byte
  uint8_t low, high;
};

LeadRow lead_row(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, size_t pos) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte_at(pos);
  if (lead < 0x80) return {1, Utf8Status::kValid};
  LeadRow row = lead_row(lead);
  if (row.n_more == 0) return {1, Utf8Status::kInvalid};
  for (size_t n = 1; n <= row.n_more; ++n) {
    if (pos + n == text.size()) return {n, Utf8Status::kTruncated};
    const uint8_t byte = byte_at(pos + n);
    if (byte < row.low || byte > row.high) return {n, Utf8Status::kInvalid};
    row.low = 0x80;
    row.high = 0xBF;
  }
  return {row.n_more + size_t{1}, Utf8Status::kValid};
}

size_t ascii_run_bytes(std::string_view text, size_t pos) {
  const size_t start = pos;
  while (text.size() - pos >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
    pos += sizeof(word);
  }
  while (pos < text.size() && static_cast<uint8_t>(text[pos]) < 0x80) ++pos;
  return pos - start;
}

size_t valid_utf8_prefix_bytes(std::string_view text) {
  size_t pos = 0;
  while (true) {
    pos += ascii_run_bytes(text, pos);
    if (pos == text.size()) return pos;
    const Utf8Step step = utf8_step(text, pos);
    if (step.status != Utf8Status::kValid) return pos;
    pos += step.n_bytes;
  }
}

char32_t decode_utf8(std::string_view text, size_t pos, size_t n_bytes) {
  const auto lead = static_cast<uint8_t>(text[pos]);
  if (n_bytes == 1) return lead;
  char32_t code_point = lead & (0x7Fu >> n_bytes);
  for (size_t n = 1; n < n_bytes; ++n) {
    code_point = (code_point << 6) | (static_cast<uint8_t>(text[pos + n]) & 0x3Fu);
  }
  return code_point;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
    return;
  }
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

}  // namespace apr
