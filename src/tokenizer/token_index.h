// From the bytes of a token to its id.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "apr/tokenizer.h"

namespace apr {

// Open addressing, at most half full; the texts are the caller's and are handed in as a function
// from id to text.
class TokenIndex {
 public:
  static constexpr TokenId kNotFound = -1;

  explicit TokenIndex(size_t n_tokens = 0)
      : slots_(std::bit_ceil(2 * n_tokens + 2), Slot{0, kNotFound}) {}

  // Adds a token; where the text has an id already, that one stays.
  template <typename TextOf>
  void insert(TokenId id, const TextOf& text_of) {
    Slot& slot = slots_[locate(text_of(id), text_of)];
    if (slot.id == kNotFound) slot = {hash_of(text_of(id)), id};
  }

  template <typename TextOf>
  TokenId find(std::string_view text, const TextOf& text_of) const {
    return slots_[locate(text, text_of)].id;
  }

 private:
  struct Slot {
    uint32_t hash;
    TokenId id;
  };

  static uint32_t hash_of(std::string_view text) {
    return static_cast<uint32_t>(std::hash<std::string_view>{}(text));
  }

  // The slot that holds the text, or the empty one where it belongs.
  template <typename TextOf>
  size_t locate(std::string_view text, const TextOf& text_of) const {
    const uint32_t hash = hash_of(text);
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].id != kNotFound &&
           !(slots_[at].hash == hash && text_of(slots_[at].id) == text)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace apr
