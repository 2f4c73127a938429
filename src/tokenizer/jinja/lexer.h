// Splits template text into tokens, as Jinja2 does with trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/arena.h"

namespace apr::jinja {

enum class TokenType : uint8_t {
  kData,
  kOutputBegin,
  kOutputEnd,
  kTagBegin,
  kTagEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string_view text;  // data, name, operator, the value of a string
  int64_t integer = 0;
  double real = 0;
};

// What a token is called in a message: "end of template", "'foo'".
std::string describe(const Token& token);

// Throws apr::Error kInvalidFormat: "chat template, line N: ...".
[[noreturn]] void fail_at(int line, std::string_view message);

// Line ends as Jinja2 sees them: \r\n and \r become \n, one newline at the end is dropped.
std::string normalize_newlines(std::string_view source);

class Lexer {
 public:
  // `source` is normalized and outlives the lexer; unescaped strings are made in `arena`.
  Lexer(std::string_view source, Arena& arena) : source_(source), arena_(arena) {}

  // The next token; kEnd again and again at the end. Throws kInvalidFormat naming the line.
  Token next();

 private:
  enum class State : uint8_t { kData, kOutput, kTag };

  bool at(std::string_view text, size_t offset = 0) const {
    return source_.substr(std::min(pos_ + offset, source_.size()), text.size()) == text;
  }
  Token make(TokenType type, std::string_view text);
  void advance(size_t n_bytes);
  void skip_space();
  // The data before a tag or comment that starts at `end`, with its whitespace control applied.
  std::string_view trimmed_data(size_t end, char sign, bool may_lstrip) const;
  bool skip_comment();
  bool find_raw(Token& out);
  // Moves past the end of a tag when one is here ("%}", "-%}", "+%}").
  bool skip_end(std::string_view close, bool may_keep, bool trims_newline);

  Token next_data();
  Token next_inside();
  Token number();
  Token name();
  Token string_literal();
  Token op();
  std::string unescape(std::string_view raw) const;

  std::string_view source_;
  Arena& arena_;
  size_t pos_ = 0;
  int line_ = 1;
  State state_ = State::kData;
  bool line_starts_ = true;     // the match before the data ended with a newline
  bool pending_begin_ = false;  // a tag begins at pos_, its data was given
  std::vector<char> brackets_;  // closing brackets awaited
};

}  // namespace apr::jinja
