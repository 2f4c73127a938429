// Byte-level BPE with the pre-tokenizers of the Qwen families, from a GGUF file's own vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apr/gguf.h"

namespace apr {

using TokenId = int32_t;

// A piece of text and whether special tokens (<|im_end|>, <think>, ...) written in it count as
// such: true for what a template writes, false for what a person or a document wrote.
struct TextPiece {
  std::string text;
  bool parse_special = false;
};

// Const methods may be called from several threads at once. It keeps no view of the file.
class Tokenizer {
 public:
  // Builds the tokenizer from `tokenizer.ggml.*` of the file. Throws kModelLoad for an unknown
  // model or pre-tokenizer (naming it and the supported list), kInvalidFormat for a bad vocabulary.
  explicit Tokenizer(const GgufFile& file);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  int64_t vocab_size() const;  // tokens in the file's list (the model's rows may be padded beyond)

  // Encodes any bytes; invalid UTF-8 is kept byte by byte (no NFC across it). No BOS is added
  // unless the file says add_bos_token; then once, also where the text begins with it.
  std::vector<TokenId> encode(std::string_view text, bool parse_special) const;

  // Encodes pieces as one text: a special token is recognised only where it lies wholly in
  // parse_special text; ordinary text is merged across piece borders.
  std::vector<TokenId> encode(std::span<const TextPiece> pieces) const;

  // The bytes a token stands for; special tokens give their literal text, unused ids and ids out of
  // range the empty string.
  std::string_view token_bytes(TokenId id) const;
  bool is_special(TokenId id) const;  // control or user-defined: parsed from text only when asked
  std::string decode(std::span<const TokenId> ids) const;

  // The token with exactly this text (token_bytes): a special one first, then the lowest id.
  std::optional<TokenId> find_token(std::string_view text) const;
  std::optional<TokenId> bos_id() const;
  std::optional<TokenId> eos_id() const;
  std::optional<TokenId> pad_id() const;
  bool add_bos() const;

  // Ids after which an answer is over: eos, eot, <|im_end|>, <|endoftext|>, those that exist.
  const std::vector<TokenId>& stop_ids() const;
  std::string_view pre_tokenizer_name() const;  // "qwen2", "qwen35"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Turns tokens into text as they come: bytes of an incomplete UTF-8 character are held back until
// it is complete or cannot become so.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // Adds a token; returns the text that is complete now (invalid bytes become U+FFFD).
  std::string push(TokenId id);
  // Returns what is left at the end (an incomplete character becomes one U+FFFD).
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // the start of an incomplete character, at most 3 bytes
};

}  // namespace apr
