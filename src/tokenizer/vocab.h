// The vocabulary of a GGUF file: the bytes and the kind of every token, checked.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apr/gguf.h"
#include "apr/tokenizer.h"
#include "tokenizer/bpe.h"
#include "tokenizer/special_matcher.h"
#include "tokenizer/token_index.h"

namespace apr {

// Values of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

class Vocab {
 public:
  // Reads tokenizer.ggml.{tokens,token_type}. Throws kInvalidFormat where a list is missing, their
  // lengths differ, a kind is unknown, a special token is over 1024 bytes long or one of the 256
  // bytes has no token of its own.
  explicit Vocab(const GgufFile& file);

  TokenId size() const { return static_cast<TokenId>(kinds_.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  TokenKind kind(TokenId id) const { return kinds_[static_cast<size_t>(id)]; }
  bool is_special(TokenId id) const {
    return kind(id) == TokenKind::kControl || kind(id) == TokenKind::kUserDefined;
  }
  std::string_view bytes(TokenId id) const {
    const auto idx = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(ends_[idx], ends_[idx + 1] - ends_[idx]);
  }
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }

  // The lowest id with exactly these bytes among special tokens / among those BPE may make.
  std::optional<TokenId> find_special(std::string_view text) const;
  std::optional<TokenId> find_ordinary(std::string_view text) const;

  SpecialMatcher special_matcher() const;  // must not outlive the vocabulary

 private:
  std::string bytes_;         // of all tokens, in order of id
  std::vector<size_t> ends_;  // [size + 1] offsets into bytes_; token id is [id, id + 1)
  std::vector<TokenKind> kinds_;
  TokenIndex special_, ordinary_;
  std::array<TokenId, 256> byte_tokens_{};
};

// Reads tokenizer.ggml.merges. A pair listed twice keeps its first rank. Merges that take or make a
// special token are left out with a note: plain text never becomes one. Throws kInvalidFormat
// naming the index of a merge that is not two tokens of the vocabulary that join to a third.
MergeTable load_merges(const GgufFile& file, const Vocab& vocab);

}  // namespace apr
