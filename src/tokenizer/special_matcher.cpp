#include "tokenizer/special_matcher.h"

#include <algorithm>

namespace apr {

SpecialMatcher::SpecialMatcher(std::vector<std::pair<std::string_view, TokenId>> texts)
    : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const auto& row) { return row.first.empty(); });
  std::sort(texts_.begin(), texts_.end());
  for (const auto& row : texts_) starts_[static_cast<uint8_t>(row.first[0])] = true;
}

std::optional<SpecialMatcher::Match> SpecialMatcher::find(std::string_view text, size_t pos) const {
  for (; pos < text.size(); ++pos) {
    if (!starts_[static_cast<uint8_t>(text[pos])]) continue;
    if (const auto match = longest_at(text, pos)) return match;
  }
  return std::nullopt;
}

// Narrows the sorted list byte by byte to the texts that agree with what stands here; one that
// ends is the first of them and the longest so far.
std::optional<SpecialMatcher::Match> SpecialMatcher::longest_at(std::string_view text,
                                                                size_t pos) const {
  std::optional<Match> longest;
  auto first = texts_.begin();
  auto last = texts_.end();
  for (size_t depth = 0; pos + depth < text.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text[pos + depth]);
    const auto byte_of = [depth](const auto& row) {
      return static_cast<uint8_t>(row.first[depth]);
    };
    first = std::partition_point(first, last, [&](const auto& row) { return byte_of(row) < byte; });
    last = std::partition_point(first, last, [&](const auto& row) { return byte_of(row) == byte; });
    if (first == last) break;
    if (first->first.size() == depth + 1) {
      longest = Match{pos, depth + 1, first->second};
      while (first != last && first->first.size() == depth + 1) ++first;
      if (first == last) break;
    }
  }
  return longest;
}

}  // namespace apr
