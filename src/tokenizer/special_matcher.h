// Finds special tokens written in text.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "apr/tokenizer.h"

namespace apr {

class SpecialMatcher {
 public:
  SpecialMatcher() = default;
  // `texts` must outlive the matcher; empty ones are never matched.
  explicit SpecialMatcher(std::vector<std::pair<std::string_view, TokenId>> texts);

  struct Match {
    size_t pos;
    size_t n_bytes;
    TokenId id;
  };

  // The first special token in `text` at or after `pos`; the longest of those at that place.
  std::optional<Match> find(std::string_view text, size_t pos) const;

 private:
  std::optional<Match> longest_at(std::string_view text, size_t pos) const;

  std::vector<std::pair<std::string_view, TokenId>> texts_;  // sorted
  std::array<bool, 256> starts_{};                           // bytes that begin one
};

}  // namespace apr
