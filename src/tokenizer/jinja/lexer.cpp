#include "tokenizer/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "apr/error.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

void fail_at(int line, std::string_view message) {
  throw Error(ErrorCode::kInvalidFormat, fmt::format("chat template, line {}: {}", line, message));
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "text";
    case TokenType::kOutputBegin:
      return "'{{'";
    case TokenType::kOutputEnd:
      return "'}}'";
    case TokenType::kTagBegin:
      return "'{%'";
    case TokenType::kTagEnd:
      return "'%}'";
    case TokenType::kString:
      return "a string";
    case TokenType::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

std::string normalize_newlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result += source[i];
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

Token Lexer::make(TokenType type, std::string_view text) {
  Token token;
  token.type = type;
  token.line = line_;
  token.text = text;
  return token;
}

void Lexer::advance(size_t n_bytes) {
  const std::string_view passed = source_.substr(pos_, n_bytes);
  line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
  if (!passed.empty()) line_starts_ = passed.back() == '\n';
  pos_ += passed.size();
}

void Lexer::skip_space() {
  size_t end = pos_;
  while (end < source_.size()) {
    const Char c = char_at(source_, end);
    if (!is_space(c.code)) break;
    end += c.size_bytes;
  }
  advance(end - pos_);
}

bool Lexer::skip_end(std::string_view close, bool may_keep, bool trims_newline) {
  if (at("-") && at(close, 1)) {
    advance(1 + close.size());
    skip_space();
    return true;
  }
  if (may_keep && at("+") && at(close, 1)) {
    advance(1 + close.size());
    return true;
  }
  if (!at(close)) return false;
  advance(close.size());
  if (trims_newline && at("\n")) advance(1);
  return true;
}

std::string_view Lexer::trimmed_data(size_t end, char sign, bool may_lstrip) const {
  std::string_view data = source_.substr(pos_, end - pos_);
  size_t kept = data.size();
  while (kept > 0) {
    const Char c = char_at(data, previous_char(data, kept));
    if (!is_space(c.code)) break;
    // lstrip_blocks takes only what is between the last newline and the tag.
    if (sign != '-' && c.code == '\n') break;
    kept = c.begin_bytes;
  }
  if (sign == '-') return data.substr(0, kept);
  if (sign == '+' || !may_lstrip) return data;
  const bool from_line_start = kept == 0 ? line_starts_ : data[kept - 1] == '\n';
  return from_line_start ? data.substr(0, kept) : data;
}

Token Lexer::next() {
  return state_ == State::kData ? next_data() : next_inside();
}

bool Lexer::skip_comment() {
  const size_t close = source_.find("#}", pos_);
  if (close == std::string_view::npos) fail_at(line_, "a comment without its '#}'");
  const bool signed_end = close > pos_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
  advance(close - pos_ - (signed_end ? 1 : 0));
  return skip_end("#}", true, true);
}

bool Lexer::find_raw(Token& out) {
  const auto word_end = [&](size_t pos, std::string_view word) -> size_t {
    const auto skip = [&] {
      while (pos < source_.size() && is_space(char_at(source_, pos).code)) {
        pos += char_at(source_, pos).size_bytes;
      }
    };
    if (pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+')) ++pos;
    skip();
    if (source_.substr(pos, word.size()) != word) return 0;
    pos += word.size();
    skip();
    return pos;
  };
  // pos_ is behind "{%".
  const size_t begin_end = word_end(pos_, "raw");
  const std::string_view close = source_.substr(std::min(begin_end, source_.size()), 3);
  if (begin_end == 0 || (close != "-%}" && close.substr(0, 2) != "%}")) return false;
  const int begin_line = line_;
  advance(begin_end - pos_);
  skip_end("%}", false, false);
  for (size_t tag = source_.find("{%", pos_); tag != std::string_view::npos;
       tag = source_.find("{%", tag + 1)) {
    const size_t end = word_end(tag + 2, "endraw");
    const std::string_view end_close = source_.substr(std::min(end, source_.size()), 3);
    if (end == 0 || (end_close != "-%}" && end_close != "+%}" && end_close.substr(0, 2) != "%}")) {
      continue;
    }
    const char sign = source_[tag + 2];
    out = make(TokenType::kData, trimmed_data(tag, sign, true));
    advance(end - pos_);
    skip_end("%}", true, true);
    return true;
  }
  fail_at(begin_line, "a raw block without its endraw");
}

Token Lexer::next_data() {
  while (true) {
    if (pos_ >= source_.size()) return make(TokenType::kEnd, {});
    if (!pending_begin_) {
      size_t tag = pos_;
      while ((tag = source_.find('{', tag)) != std::string_view::npos) {
        const char kind = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
        if (kind == '%' || kind == '{' || kind == '#') break;
        ++tag;
      }
      if (tag == std::string_view::npos) {
        const Token data = make(TokenType::kData, source_.substr(pos_));
        advance(source_.size() - pos_);
        return data;
      }
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const Token data = make(TokenType::kData, trimmed_data(tag, sign, source_[tag + 1] != '{'));
      advance(tag - pos_);
      pending_begin_ = true;
      if (!data.text.empty()) return data;
    }
    pending_begin_ = false;
    const char kind = source_[pos_ + 1];
    const Token begin =
        make(kind == '{' ? TokenType::kOutputBegin : TokenType::kTagBegin, source_.substr(pos_, 2));
    advance(2);
    if (kind == '%') {
      Token raw;
      if (find_raw(raw)) {
        if (!raw.text.empty()) return raw;
        continue;
      }
    }
    if (at("-") || at("+")) advance(1);
    if (kind == '#') {
      skip_comment();
      continue;
    }
    state_ = kind == '{' ? State::kOutput : State::kTag;
    return begin;
  }
}

Token Lexer::next_inside() {
  const bool is_output = state_ == State::kOutput;
  while (true) {
    if (pos_ >= source_.size()) return make(TokenType::kEnd, {});
    const Token end = make(is_output ? TokenType::kOutputEnd : TokenType::kTagEnd, {});
    if (brackets_.empty() && skip_end(is_output ? "}}" : "%}", !is_output, !is_output)) {
      state_ = State::kData;
      return end;
    }
    const Char c = char_at(source_, pos_);
    if (is_space(c.code)) {
      skip_space();
      continue;
    }
    if (c.code >= '0' && c.code <= '9') return number();
    if (is_word(c.code)) return name();
    if (c.code == '\'' || c.code == '"') return string_literal();
    return op();
  }
}

}  // namespace apr::jinja
