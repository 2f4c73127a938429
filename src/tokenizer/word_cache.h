// Remembers the ids of short words seen before in the same text: a fixed number of slots, one per
// hash, the newest word stays.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "apr/tokenizer.h"

namespace apr {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 16;
  static constexpr size_t kMaxIds = 3;

  // The text as two words, zero-padded.
  struct Key {
    uint64_t low, high;
    uint32_t n_bytes;  // 1..16
  };

  // Sized for a text of `text_bytes`: 32 bytes a slot, 2 KB to 512 KB.
  explicit WordCache(size_t text_bytes)
      : entries_(std::clamp(std::bit_ceil(text_bytes / 16 + 1), size_t{64}, size_t{16384})) {}

  // `word` begins `rest`, the text that may be read.
  static Key key_of(std::string_view word, std::string_view rest) {
    std::array<uint64_t, 2> words{};
    if (rest.size() >= kMaxWordBytes) {
      // A copy of fixed size, then masked: cheaper than a copy of variable size.
      std::memcpy(words.data(), rest.data(), kMaxWordBytes);
      const auto mask = [](size_t n_bytes) {
        return n_bytes >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * n_bytes)) - 1;
      };
      static_assert(std::endian::native == std::endian::little);
      words[0] &= mask(word.size());
      words[1] &= word.size() <= 8 ? 0 : mask(word.size() - 8);
    } else {
      std::memcpy(words.data(), word.data(), word.size());
    }
    return {words[0], words[1], static_cast<uint32_t>(word.size())};
  }

  // The ids of the word; empty where they are not known.
  std::span<const TokenId> find(const Key& key) const {
    const Entry& entry = entries_[slot_of(key)];
    const bool same =
        entry.low == key.low && entry.high == key.high && entry.n_bytes == key.n_bytes;
    return {entry.ids.data(), same ? entry.n_ids : size_t{0}};
  }

  void insert(const Key& key, std::span<const TokenId> ids) {
    if (ids.size() > kMaxIds) return;
    Entry& entry = entries_[slot_of(key)];
    entry = {key.low,
             key.high,
             {},
             static_cast<uint16_t>(key.n_bytes),
             static_cast<uint16_t>(ids.size())};
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  struct Entry {
    uint64_t low, high;
    std::array<TokenId, kMaxIds> ids;
    uint16_t n_bytes, n_ids;
  };
  static_assert(sizeof(Entry) == 32);

  size_t slot_of(const Key& key) const {
    uint64_t mixed = (key.low ^ (key.high * 0xC2B2AE3D27D4EB4Fu)) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
    return static_cast<size_t>(mixed) & (entries_.size() - 1);
  }

  std::vector<Entry> entries_;
};

}  // namespace apr
