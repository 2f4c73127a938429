// Tokens inside of tags: numbers, names, strings, operators.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

int digit_value(char c) {
  if (is_ascii_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// End of a run of digits of `base` in which single underscores may stand between digits.
size_t digits_end(std::string_view text, size_t pos, int base) {
  while (pos < text.size()) {
    const size_t digit = text[pos] == '_' ? pos + 1 : pos;
    if (digit >= text.size() || digit_value(text[digit]) >= base) break;
    pos = digit + 1;
  }
  return pos;
}

}  // namespace

Token Lexer::number() {
  const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
  const size_t whole_end = digits_end(source_, pos_, 10);
  size_t end = whole_end;
  const auto digit_at = [&](size_t pos) {
    return pos < source_.size() && is_ascii_digit(source_[pos]);
  };
  if (!after_dot) {
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      end = digits_end(source_, end + 1, 10);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool has_sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      const size_t exponent = end + (has_sign ? 2 : 1);
      if (digit_at(exponent)) end = digits_end(source_, exponent, 10);
    }
  }
  const bool is_float = end > whole_end;
  int base = 10;
  if (!is_float && source_[pos_] == '0') {
    const char mark = pos_ + 1 < source_.size() ? source_[pos_ + 1] : '\0';
    const int marked = mark == 'x' || mark == 'X'   ? 16
                       : mark == 'o' || mark == 'O' ? 8
                       : mark == 'b' || mark == 'B' ? 2
                                                    : 0;
    const size_t marked_end = marked != 0 ? digits_end(source_, pos_ + 2, marked) : 0;
    if (marked_end > pos_ + 2) {
      base = marked;
      end = marked_end;
    } else {
      end = digits_end(source_, pos_, 1);  // a zero may only be followed by zeros
    }
  }
  Token token =
      make(is_float ? TokenType::kFloat : TokenType::kInteger, source_.substr(pos_, end - pos_));
  std::string digits(token.text.substr(base == 10 ? 0 : 2));
  std::erase(digits, '_');
  if (is_float) {
    token.real = std::strtod(digits.c_str(), nullptr);
  } else {
    const auto [ptr, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (error != std::errc()) fail_at(line_, "an integer that does not fit 64 bits");
  }
  advance(end - pos_);
  return token;
}

Token Lexer::name() {
  size_t end = pos_;
  while (end < source_.size()) {
    const Char c = char_at(source_, end);
    if (!is_word(c.code)) break;
    end += c.size_bytes;
  }
  const Char first = char_at(source_, pos_);
  if (first.code != '_' && !is_alpha(first.code)) fail_at(line_, "a name starts with a digit");
  const Token token = make(TokenType::kName, source_.substr(pos_, end - pos_));
  advance(end - pos_);
  return token;
}

Token Lexer::string_literal() {
  const char quote = source_[pos_];
  size_t end = pos_ + 1;
  bool has_escape = false;
  while (end < source_.size() && source_[end] != quote) {
    has_escape |= source_[end] == '\\';
    end += source_[end] == '\\' ? 2 : 1;
  }
  if (end >= source_.size()) fail_at(line_, "a string without its closing quote");
  const std::string_view raw = source_.substr(pos_ + 1, end - pos_ - 1);
  const Token token = make(TokenType::kString, has_escape ? arena_.copy_text(unescape(raw)) : raw);
  advance(end + 1 - pos_);
  return token;
}

std::string Lexer::unescape(std::string_view raw) const {
  std::string result;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      result += raw[i];
      continue;
    }
    const char c = raw[++i];
    constexpr std::string_view kPlain = "\\'\"abfnrtv";
    constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t at = kPlain.find(c); at != std::string_view::npos) {
      result += kMeaning[at];
    } else if (c == '\n') {
      continue;
    } else if (c >= '0' && c <= '7') {
      int32_t code = 0;
      const size_t end = std::min(raw.size(), i + 3);
      for (; i < end && raw[i] >= '0' && raw[i] <= '7'; ++i) code = code * 8 + (raw[i] - '0');
      --i;
      result += encode_utf8(code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t code = 0;
      for (size_t k = 0; k < n_digits; ++k) {
        const int digit = i + 1 < raw.size() ? digit_value(raw[i + 1]) : 99;
        if (digit >= 16) fail_at(line_, fmt::format("a cut '\\{}' escape in a string", c));
        code = code * 16 + static_cast<uint32_t>(digit);
        ++i;
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        fail_at(line_, fmt::format("'\\{}' escape of {:#x}, which is no character", c, code));
      }
      result += encode_utf8(static_cast<int32_t>(code));
    } else if (c == 'N') {
      fail_at(line_, "'\\N' escapes are not supported");
    } else {
      result += '\\';
      result += c;
    }
  }
  return result;
}

Token Lexer::op() {
  constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
  size_t size = kOne.find(source_[pos_]) != std::string_view::npos ? 1 : 0;
  for (const std::string_view two : kTwo) {
    if (at(two)) size = 2;
  }
  if (size == 0) {
    fail_at(line_, fmt::format("unexpected character '{}'",
                               source_.substr(pos_, char_at(source_, pos_).size_bytes)));
  }
  const Token token = make(TokenType::kOperator, source_.substr(pos_, size));
  const char c = source_[pos_];
  if (c == '(' || c == '[' || c == '{') {
    brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
  } else if (c == ')' || c == ']' || c == '}') {
    if (brackets_.empty() || brackets_.back() != c) {
      fail_at(line_, fmt::format("unexpected '{}'", c));
    }
    brackets_.pop_back();
  }
  advance(size);
  return token;
}

}  // namespace apr::jinja
