// Sizes of a block of attention_prefill, which its launcher needs, too.
#pragma once

namespace apr {

template <int kHeadDim>
struct FlashShape {
  static constexpr bool kIsWide = kHeadDim > 128;
  static constexpr int kWarps = kIsWide ? 8 : 4;
  static constexpr int kRowTiles = kIsWide ? 1 : 2;  // of 16 rows, a warp: two halve what is read
  static constexpr int kKeys = kIsWide ? 32 : 64;    // of a tile
  static constexpr int kPartKeys = 32;               // whose scores are in registers at a time
  static constexpr int kBlocks = kIsWide ? 1 : kHeadDim > 64 ? 2 : 3;  // of a multiprocessor
  static constexpr bool kQueriesInRegisters = kIsWide;
  static constexpr int kRows = kWarps * kRowTiles * 16;  // pairs of token and head
  static constexpr int kRowBytes = 2 * kHeadDim;
  static constexpr int kTileBytes = kKeys * kRowBytes;  // of keys, or of values
  // Shared memory: two stages of keys and values; q, in their place where it moves to registers.
  static constexpr int kQueryOffset = kQueriesInRegisters ? 0 : 4 * kTileBytes;
  static constexpr int kQueryBytes = kRows * kRowBytes;
  static constexpr int kFactsOffset =
      kQueryOffset +
      (kQueriesInRegisters && kQueryBytes < 4 * kTileBytes ? 4 * kTileBytes : kQueryBytes);
  static constexpr int kSharedBytes = kFactsOffset + kRows * 8;
};

}  // namespace apr
