// Strings by code points, and the making of strings that know where their bytes came from.
#pragma once

#include <string>
#include <vector>

#include "apr/tokenizer.h"
#include "tokenizer/jinja/runtime.h"

namespace apr::jinja {

// A code point of a string. A byte that is not UTF-8 is a character of its own with code -1.
struct Char {
  int32_t code = -1;
  size_t begin_bytes = 0;
  size_t size_bytes = 0;
  bool from_template = false;
};

// Walks the characters of a string.
class CharReader {
 public:
  explicit CharReader(const Str& str) : str_(str) {}
  bool next(Char& out);

 private:
  const Str& str_;
  size_t pos_bytes_ = 0;
  size_t run_idx_ = 0;
};

// Code point (or -1) and size of the character of `text` at `pos_bytes`, which must be inside.
Char char_at(std::string_view text, size_t pos_bytes);
// Start of the character that ends at `end_bytes` (> 0).
size_t previous_char(std::string_view text, size_t end_bytes);
int64_t count_chars(std::string_view text);
// Byte position of character `char_idx`, the size of the text when there is none.
size_t byte_of_char(std::string_view text, int64_t char_idx);
std::string encode_utf8(int32_t code);

// Python's notions of characters; -1 is none of them.
bool is_space(int32_t code);
bool is_line_break(int32_t code);
bool is_alpha(int32_t code);
bool is_decimal(int32_t code);
bool is_digit(int32_t code);
bool is_numeric(int32_t code);
bool is_word(int32_t code);  // \w
bool is_upper(int32_t code);
bool is_lower(int32_t code);
bool is_title(int32_t code);
bool is_cased(int32_t code);
bool is_printable(int32_t code);

bool from_template_at(const Str& str, size_t pos_bytes);
// Bytes [begin, begin + size) of `str`; shares them.
const Str& slice_str(Runtime& rt, const Str& str, size_t begin_bytes, size_t size_bytes);
inline Value slice_value(Runtime& rt, const Str& str, size_t begin_bytes, size_t size_bytes) {
  return str_value(&slice_str(rt, str, begin_bytes, size_bytes));
}

class TextBuilder {
 public:
  explicit TextBuilder(Runtime& rt) : rt_(rt) {}
  void add(std::string_view bytes, bool from_template);
  void add(const Str& str);
  void add_slice(const Str& str, size_t begin_bytes, size_t size_bytes);
  // `n_times` copies, bounded before any is made; none for a negative count.
  void add_times(const Str& str, int64_t n_times);
  size_t size_bytes() const { return bytes_.size(); }
  const Str& finish();
  Value finish_value() { return str_value(&finish()); }
  // The pieces of a rendering.
  std::vector<TextPiece> finish_pieces() const;

 private:
  void reserve(size_t more_bytes);

  Runtime& rt_;
  std::string bytes_;
  std::vector<Run> runs_;
};

enum class Case : uint8_t { kUpper, kLower, kCapitalize, kTitle };
// str.upper(), lower(), capitalize() and title() of Python, with full case mappings.
const Str& change_case(Runtime& rt, const Str& str, Case to);
// str.strip(chars) of Python, at either end; null: whitespace.
const Str& strip(Runtime& rt, const Str& str, const Str* chars, bool left, bool right);

}  // namespace apr::jinja
