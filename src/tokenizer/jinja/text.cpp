#include "tokenizer/jinja/text.h"

#include <algorithm>

namespace apr::jinja {

Char char_at(std::string_view text, size_t pos_bytes) {
  const auto byte = [&](size_t offset) {
    return static_cast<uint8_t>(pos_bytes + offset < text.size() ? text[pos_bytes + offset] : 0);
  };
  const uint8_t lead = byte(0);
  Char result{-1, pos_bytes, 1, false};
  if (lead < 0x80) {
    result.code = lead;
    return result;
  }
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return result;
  int32_t code = lead & (0x7F >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return result;
    code = (code << 6) | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return result;
  result.code = code;
  result.size_bytes = size;
  return result;
}

size_t previous_char(std::string_view text, size_t end_bytes) {
  for (size_t size = 2; size <= 4 && size <= end_bytes; ++size) {
    if (char_at(text, end_bytes - size).size_bytes == size) return end_bytes - size;
  }
  return end_bytes - 1;
}

bool CharReader::next(Char& out) {
  if (pos_bytes_ >= str_.text.size()) return false;
  out = char_at(str_.text, pos_bytes_);
  out.from_template = str_.origin == Origin::kTemplate;
  if (str_.origin == Origin::kMixed) {
    while (str_.runs[run_idx_].end_bytes <= pos_bytes_) ++run_idx_;
    out.from_template = str_.runs[run_idx_].from_template;
  }
  pos_bytes_ += out.size_bytes;
  return true;
}

int64_t count_chars(std::string_view text) {
  int64_t n_chars = 0;
  for (size_t pos = 0; pos < text.size(); pos += char_at(text, pos).size_bytes) ++n_chars;
  return n_chars;
}

size_t byte_of_char(std::string_view text, int64_t char_idx) {
  size_t pos = 0;
  for (; char_idx > 0 && pos < text.size(); --char_idx) pos += char_at(text, pos).size_bytes;
  return pos;
}

std::string encode_utf8(int32_t code) {
  const auto c = static_cast<uint32_t>(code);
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

namespace {
// Index of the run that holds byte `pos_bytes` of a mixed string.
size_t run_at(const Str& str, size_t pos_bytes) {
  const auto it = std::upper_bound(str.runs.begin(), str.runs.end(), pos_bytes,
                                   [](size_t pos, const Run& run) { return pos < run.end_bytes; });
  return static_cast<size_t>(it - str.runs.begin());
}
}  // namespace

bool from_template_at(const Str& str, size_t pos_bytes) {
  if (str.origin != Origin::kMixed) return str.origin == Origin::kTemplate;
  return pos_bytes < str.text.size() && str.runs[run_at(str, pos_bytes)].from_template;
}

const Str& slice_str(Runtime& rt, const Str& str, size_t begin_bytes, size_t size_bytes) {
  if (size_bytes == str.text.size()) return str;
  Str slice{str.text.substr(begin_bytes, size_bytes), {}, str.origin};
  if (str.origin == Origin::kMixed && size_bytes == 0) slice.origin = Origin::kInput;
  if (str.origin == Origin::kMixed && size_bytes > 0) {
    const size_t first = run_at(str, begin_bytes);
    const size_t last = run_at(str, begin_bytes + size_bytes - 1);
    if (first == last) {
      slice.origin = str.runs[first].from_template ? Origin::kTemplate : Origin::kInput;
    } else {
      rt.step(static_cast<int64_t>(last - first) / 16);
      Run* runs = rt.arena.create_array<Run>(last - first + 1);
      for (size_t i = first; i <= last; ++i) {
        runs[i - first] = {std::min(str.runs[i].end_bytes - begin_bytes, size_bytes),
                           str.runs[i].from_template};
      }
      slice.runs = {runs, last - first + 1};
    }
  }
  return *rt.arena.create(slice);
}

void TextBuilder::reserve(size_t more_bytes) {
  const size_t needed = bytes_.size() + more_bytes;
  if (needed <= bytes_.capacity()) return;
  const size_t capacity = std::max(needed, bytes_.capacity() * 2);
  rt_.arena.charge(capacity);
  bytes_.reserve(capacity);
}

void TextBuilder::add(std::string_view bytes, bool from_template) {
  if (bytes.empty()) return;
  reserve(bytes.size());
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().from_template == from_template) {
    runs_.back().end_bytes = bytes_.size();
  } else {
    if (runs_.size() == runs_.capacity()) {
      const size_t capacity = std::max<size_t>(4, runs_.capacity() * 2);
      rt_.arena.charge(capacity * sizeof(Run));
      runs_.reserve(capacity);
    }
    runs_.push_back({bytes_.size(), from_template});
  }
}

void TextBuilder::add(const Str& str) {
  add_slice(str, 0, str.text.size());
}

void TextBuilder::add_slice(const Str& str, size_t begin_bytes, size_t size_bytes) {
  rt_.step_bytes(size_bytes);
  if (str.origin != Origin::kMixed) {
    add(str.text.substr(begin_bytes, size_bytes), str.origin == Origin::kTemplate);
    return;
  }
  const size_t end_bytes = begin_bytes + size_bytes;
  while (begin_bytes < end_bytes) {
    const Run& run = str.runs[run_at(str, begin_bytes)];
    const size_t part_end = std::min(run.end_bytes, end_bytes);
    add(str.text.substr(begin_bytes, part_end - begin_bytes), run.from_template);
    begin_bytes = part_end;
  }
}

void TextBuilder::add_times(const Str& str, int64_t n_times) {
  if (n_times <= 0 || str.text.empty()) return;
  // Above 2^62 bytes the product is past any bound: any such size gives the bound's error.
  constexpr uint64_t kPastAnyBound = uint64_t{1} << 62;
  const auto n = static_cast<uint64_t>(n_times);
  reserve(n > kPastAnyBound / str.text.size() ? kPastAnyBound : n * str.text.size());
  rt_.step(n_times / 16);
  for (uint64_t i = 0; i < n; ++i) add(str);
}

const Str& TextBuilder::finish() {
  Str str{rt_.arena.copy_text(bytes_), {}, Origin::kTemplate};
  if (runs_.size() == 1 && !runs_[0].from_template) str.origin = Origin::kInput;
  if (runs_.size() > 1) {
    str.origin = Origin::kMixed;
    str.runs = rt_.arena.copy_array(runs_);
  }
  return *rt_.arena.create(str);
}

std::vector<TextPiece> TextBuilder::finish_pieces() const {
  rt_.arena.charge(bytes_.size() + runs_.size() * sizeof(TextPiece));
  std::vector<TextPiece> pieces;
  pieces.reserve(runs_.size());
  size_t begin = 0;
  for (const Run& run : runs_) {
    pieces.push_back({bytes_.substr(begin, run.end_bytes - begin), run.from_template});
    begin = run.end_bytes;
  }
  return pieces;
}

const Str& strip(Runtime& rt, const Str& str, const Str* chars, bool left, bool right) {
  std::vector<int32_t> codes;
  std::string_view raw_bytes;  // bytes of `chars` that are not UTF-8 are matched as they are
  if (chars != nullptr) {
    rt.arena.charge(chars->text.size() * sizeof(int32_t));
    raw_bytes = chars->text;
    Char c;
    for (CharReader reader(*chars); reader.next(c);) codes.push_back(c.code);
    std::sort(codes.begin(), codes.end());
  }
  const std::string_view text = str.text;
  rt.step_bytes(text.size());
  const auto is_stripped = [&](const Char& c) {
    if (chars == nullptr) return is_space(c.code);
    if (c.code < 0) return raw_bytes.find(text[c.begin_bytes]) != std::string_view::npos;
    return std::binary_search(codes.begin(), codes.end(), c.code);
  };
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    const Char c = char_at(text, begin);
    if (!is_stripped(c)) break;
    begin += c.size_bytes;
  }
  while (right && end > begin) {
    const Char c = char_at(text, previous_char(text, end));
    if (!is_stripped(c)) break;
    end = c.begin_bytes;
  }
  return slice_str(rt, str, begin, end - begin);
}

}  // namespace apr::jinja
