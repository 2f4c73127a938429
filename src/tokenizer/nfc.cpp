#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "apr/error.h"
#include "tokenizer/utf8.h"

namespace apr {
namespace {

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Puts marks in canonical order. utf8proc's own ordering swaps neighbours, which is quadratic on a
// long run of marks; this is why the steps of utf8proc_NFC are taken one by one here.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  auto at = code_points.begin();
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  while (true) {
    const auto first = std::find_if(at, code_points.end(), is_mark);
    if (first == code_points.end()) return;
    at = std::find_if_not(first, code_points.end(), is_mark);
    if (at - first > 1) {
      std::stable_sort(first, at, [](utf8proc_int32_t a, utf8proc_int32_t b) {
        return combining_class(a) < combining_class(b);
      });
    }
  }
}

// NFC of one segment, which needs no text before or after it.
void normalize_segment(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  std::array<utf8proc_int32_t, 32> parts;  // canonical decompositions have at most 4
  for (size_t pos = 0; pos < text.size();) {
    const size_t n_bytes = utf8_step(text, pos).n_bytes;
    const auto code_point = static_cast<utf8proc_int32_t>(decode_utf8(text, pos, n_bytes));
    int boundary_class = 0;
    const utf8proc_ssize_t n_parts = utf8proc_decompose_char(code_point, parts.data(), parts.size(),
                                                             UTF8PROC_DECOMPOSE, &boundary_class);
    APR_CHECK(n_parts >= 0 && n_parts <= static_cast<utf8proc_ssize_t>(parts.size()),
              "utf8proc decomposes every scalar value");
    code_points.insert(code_points.end(), parts.begin(), parts.begin() + n_parts);
    pos += n_bytes;
  }
  order_marks(code_points);
  const utf8proc_ssize_t n_composed = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  APR_CHECK(n_composed >= 0, "utf8proc composes every decomposed text");
  for (utf8proc_ssize_t i = 0; i < n_composed; ++i) {
    append_utf8(static_cast<char32_t>(code_points[static_cast<size_t>(i)]), out);
  }
}

// Where the next segment that NFC may change lies: from the last character that starts one to the
// next such character. Empty at the end of the text.
struct Segment {
  size_t begin, end;
};

Segment next_segment(std::string_view text, size_t pos) {
  Segment segment{pos, pos};
  bool changes = false;
  while (pos < text.size()) {
    const size_t n_ascii = changes ? 0 : ascii_run_bytes(text, pos);
    if (n_ascii > 0) {
      pos += n_ascii;
      segment.begin = pos - 1;
      continue;
    }
    const size_t n_bytes = utf8_step(text, pos).n_bytes;
    const bool starts = starts_nfc_segment(decode_utf8(text, pos, n_bytes));
    if (starts && changes) return {segment.begin, pos};
    if (starts) segment.begin = pos;
    changes = changes || !starts;
    pos += n_bytes;
  }
  return changes ? Segment{segment.begin, pos} : Segment{pos, pos};
}

}  // namespace

bool starts_nfc_segment(char32_t c) {
  // U+11A7 joins nothing, but utf8proc 2.8 drops it after a Hangul syllable; so it goes alone.
  return c < 0x300 || (c >= 0x400 && c <= 0x482) || c == 0x11A7 ||        // Latin, Cyrillic
         (c >= 0x2010 && c <= 0x2027) ||                                  // dashes, quotes
         (c >= 0x3001 && c <= 0x3029) ||                                  // CJK punctuation
         (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A0 && c <= 0x30FF) ||  // kana
         (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||  // ideographs
         (c >= 0xAC00 && c <= 0xD7A3) ||                                  // Hangul syllables
         (c >= 0xFF01 && c <= 0xFF60) || (c >= 0x1F300 && c <= 0x1FAFF);  // fullwidth, emoji
}

std::string_view normalize_nfc(std::string_view text, std::string& buffer) {
  buffer.clear();
  std::string normalized;
  size_t n_copied = 0;  // of `text`, into `buffer`; 0 while nothing has changed
  size_t pos = 0;
  while (true) {
    const Segment segment = next_segment(text, pos);
    if (segment.begin == segment.end) break;
    const std::string_view original = text.substr(segment.begin, segment.end - segment.begin);
    normalized.clear();
    normalize_segment(original, normalized);
    if (normalized != original) {
      buffer.append(text.substr(n_copied, segment.begin - n_copied));
      buffer.append(normalized);
      n_copied = segment.end;
    }
    pos = segment.end;
  }
  if (n_copied == 0) return text;
  buffer.append(text.substr(n_copied));
  return buffer;
}

}  // namespace apr
