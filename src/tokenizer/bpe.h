// Byte-pair merging within one piece of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apr/tokenizer.h"

namespace apr {

struct Merge {
  uint32_t rank;  // position in the file's list: the lowest goes first
  TokenId result;
};

// The merge of two neighbouring tokens: open addressing, at most half full.
class MergeTable {
 public:
  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t n_merges);

  // Adds a merge; false where the pair has one already, which stays.
  bool insert(TokenId left, TokenId right, Merge merge);

  // The merge of the pair; null where it has none.
  const Merge* find(TokenId left, TokenId right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = slot_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return &slot.merge;
      if (slot.key == kEmpty) return nullptr;
    }
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;  // no pair: ids are not negative
  static uint64_t key_of(TokenId left, TokenId right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(mixed ^ (mixed >> 32)) & mask_;
  }
  std::vector<Slot> slots_;
  size_t mask_;
};

// Merges neighbours, lowest rank first and leftmost first among equals, until none is left. The
// result stands at the front of `ids`; returns its length. The reference: plain passes, quadratic.
size_t merge_bpe_reference(const MergeTable& merges, std::span<TokenId> ids);

// The same ids in O(n log n), for long pieces; at most 2^31 ids.
size_t merge_bpe_heap(const MergeTable& merges, std::span<TokenId> ids);

// The faster of the two for this length.
inline size_t merge_bpe(const MergeTable& merges, std::span<TokenId> ids) {
  constexpr size_t kShortPiece = 48;  // ids; the two cost the same near here
  return ids.size() <= kShortPiece ? merge_bpe_reference(merges, ids) : merge_bpe_heap(merges, ids);
}

}  // namespace apr
