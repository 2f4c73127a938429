#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "apr/error.h"

namespace apr {

MergeTable::MergeTable(size_t n_merges)
    : slots_(std::bit_ceil(2 * n_merges + 2), Slot{kEmpty, {0, 0}}), mask_(slots_.size() - 1) {}

bool MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t at = slot_of(key);
  while (slots_[at].key != kEmpty) {
    if (slots_[at].key == key) return false;
    at = (at + 1) & mask_;
  }
  slots_[at] = {key, merge};
  return true;
}

size_t merge_bpe_reference(const MergeTable& merges, std::span<TokenId> ids) {
  size_t n_ids = ids.size();
  while (n_ids > 1) {
    const Merge* best = nullptr;
    size_t best_idx = 0;
    for (size_t idx = 0; idx + 1 < n_ids; ++idx) {
      const Merge* merge = merges.find(ids[idx], ids[idx + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        best_idx = idx;
      }
    }
    if (best == nullptr) break;
    ids[best_idx] = best->result;
    std::copy(ids.begin() + best_idx + 2, ids.begin() + n_ids, ids.begin() + best_idx + 1);
    --n_ids;
  }
  return n_ids;
}

namespace {

constexpr uint32_t kNone = UINT32_MAX;

// A token of the piece being merged, linked to its neighbours.
struct Node {
  uint32_t previous, next;  // index or kNone
  uint32_t rank;            // of the merge with `next`; kNone: there is none, or the node is gone
  TokenId result;           // of that merge
};

// A merge that was possible when it was queued; it still is where the node has the same rank,
// because a rank belongs to one pair only.
struct Candidate {
  uint32_t rank;
  uint32_t node;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : node > other.node;
  }
};

class HeapMerger {
 public:
  HeapMerger(const MergeTable& merges, std::span<TokenId> ids)
      : merges_(merges), ids_(ids), nodes_(ids.size()) {}

  size_t run() {
    const auto n_ids = static_cast<uint32_t>(ids_.size());
    std::vector<Candidate> first;
    first.reserve(n_ids);
    for (uint32_t node = 0; node < n_ids; ++node) {
      nodes_[node].previous = node == 0 ? kNone : node - 1;
      nodes_[node].next = node + 1 == n_ids ? kNone : node + 1;
      if (look_up(node)) first.push_back({nodes_[node].rank, node});
    }
    queue_ = Queue(std::greater<>(), std::move(first));
    while (!queue_.empty()) {
      const Candidate candidate = queue_.top();
      queue_.pop();
      if (nodes_[candidate.node].rank == candidate.rank) apply(candidate.node);
    }
    size_t n_left = 0;
    for (uint32_t node = 0; node != kNone; node = nodes_[node].next) ids_[n_left++] = ids_[node];
    return n_left;
  }

 private:
  using Queue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

  // Refreshes the node's merge with its successor; whether there is one.
  bool look_up(uint32_t node) {
    const uint32_t next = nodes_[node].next;
    const Merge* merge = next == kNone ? nullptr : merges_.find(ids_[node], ids_[next]);
    nodes_[node].rank = merge == nullptr ? kNone : merge->rank;
    nodes_[node].result = merge == nullptr ? 0 : merge->result;
    return merge != nullptr;
  }

  void look_up_and_queue(uint32_t node) {
    if (look_up(node)) queue_.push({nodes_[node].rank, node});
  }

  void apply(uint32_t node) {
    const uint32_t gone = nodes_[node].next;
    ids_[node] = nodes_[node].result;
    nodes_[gone].rank = kNone;
    nodes_[node].next = nodes_[gone].next;
    if (nodes_[gone].next != kNone) nodes_[nodes_[gone].next].previous = node;
    look_up_and_queue(node);
    if (nodes_[node].previous != kNone) look_up_and_queue(nodes_[node].previous);
  }

  const MergeTable& merges_;
  std::span<TokenId> ids_;
  std::vector<Node> nodes_;
  Queue queue_;
};

}  // namespace

size_t merge_bpe_heap(const MergeTable& merges, std::span<TokenId> ids) {
  APR_CHECK(ids.size() < (size_t{1} << 31), "the caller bounds the text");
  if (ids.empty()) return 0;
  return HeapMerger(merges, ids).run();
}

}  // namespace apr
