// Sizes of a block of attention_split, which its launcher needs, too.
#pragma once

namespace apr {

constexpr int kSplitWarps = 8;
constexpr int kSplitThreads = kSplitWarps * 32;
constexpr int kSplitTileKeys = 16;  // of a warp at a time
constexpr int kMostSplits = 264;    // of a kv head
constexpr int kMostSplitGroup = 8;  // query heads of a kv head: the columns of a product

// Tiles of a split: up to kAloneTiles one block does without partial results, from there on splits
// of at least kLeastTiles share them.
constexpr int kAloneTiles = 2 * kSplitWarps, kLeastTiles = kSplitWarps;

// Dynamic shared memory: the warps' results; later the weights of the splits and sums of threads.
constexpr int split_shared_bytes(int head_dim, int group, int n_splits) {
  const int joining = kSplitWarps * group * head_dim * 4;
  const int combining = (n_splits * group + 3) / 4 * 16 + kSplitThreads * 16;
  return joining > combining ? joining : combining;
}

}  // namespace apr
