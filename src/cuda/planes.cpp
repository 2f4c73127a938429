#include "cuda/planes.h"

#include <algorithm>
#include <cstring>

#include "cuda/quant_traits.h"

namespace apr::cuda {
namespace {

constexpr int64_t kAlignBytes = 256;

int64_t aligned(int64_t n_bytes) {
  return (n_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

// What the planes layout of a block type needs; no bytes of a plain one, which stays as it is.
struct PlanesOf {
  int64_t (*bytes)(int64_t n_rows, int64_t n_cols);
  void (*pack)(const std::byte* raw, int64_t n_rows, int64_t n_cols, std::byte* planes);
};

// Segment kSegment of the rows of one unit; `raw`: the unit's first block of row 0.
template <class T, int kSegment>
void pack_segments(const std::byte* raw, int64_t row_bytes, int n_rows, int n_blocks,
                   std::byte* unit) {
  if constexpr (kSegment < T::kSegments) {
    constexpr int kBlocks = quant::PlanesBlock<T>::kBlocks;
    constexpr size_t kBytes = T::kSegmentBytes[kSegment];
    constexpr size_t kRowBytes = kBytes * kBlocks;
    constexpr size_t kOffset = quant::segment_offset_bytes<T>(kSegment);
    std::byte* plane = unit + quant::kUnitRows * kBlocks * kOffset;
    for (int row = 0; row < n_rows; ++row) {
      std::byte gathered[kRowBytes] = {};
      for (int block = 0; block < n_blocks; ++block) {
        std::memcpy(gathered + static_cast<size_t>(block) * kBytes,
                    raw + row * row_bytes + block * T::kBlockBytes + kOffset, kBytes);
      }
      if constexpr (kRowBytes % 16 == 0) {
        for (size_t piece = 0; piece < kRowBytes / 16; ++piece) {
          std::memcpy(plane + (piece * quant::kUnitRows + static_cast<size_t>(row)) * 16,
                      gathered + piece * 16, 16);
        }
      } else {
        std::memcpy(plane + static_cast<size_t>(row) * kRowBytes, gathered, kRowBytes);
      }
    }
    pack_segments<T, kSegment + 1>(raw, row_bytes, n_rows, n_blocks, unit);
  }
}

template <class T>
void pack(const std::byte* raw, int64_t n_rows, int64_t n_cols, std::byte* planes) {
  constexpr int kBlocks = quant::PlanesBlock<T>::kBlocks;
  const int64_t blocks_per_row = n_cols / T::kBlockElems;
  const int64_t row_bytes = blocks_per_row * T::kBlockBytes;
  for (int64_t row = 0; row < n_rows; row += quant::kUnitRows) {
    for (int64_t block = 0; block < blocks_per_row; block += kBlocks) {
      const auto rows_here = static_cast<int>(std::min<int64_t>(quant::kUnitRows, n_rows - row));
      const auto blocks_here = static_cast<int>(std::min<int64_t>(kBlocks, blocks_per_row - block));
      pack_segments<T, 0>(raw + row * row_bytes + block * T::kBlockBytes, row_bytes, rows_here,
                          blocks_here, planes);
      planes += quant::unit_bytes<T>();
    }
  }
}

PlanesOf planes_of(const QuantType& type) {
  return visit_quant_type(type, []<class T>() -> PlanesOf {
    if constexpr (T::kBlockElems == 1) {
      return {nullptr, nullptr};
    } else {
      return {&quant::planes_bytes<T>, &pack<T>};
    }
  });
}

}  // namespace

int64_t row_count(const Weight& weight) {
  return weight.n_experts * weight.n_rows;
}

bool has_planes(const QuantType& type) {
  return planes_of(type).bytes != nullptr;
}

int64_t planes_bytes(const QuantType& type, int64_t n_rows, int64_t n_cols) {
  return planes_of(type).bytes(n_rows, n_cols);
}

void pack_planes(const QuantType& type, const std::byte* raw, int64_t n_rows, int64_t n_cols,
                 std::byte* planes) {
  std::memset(planes, 0, static_cast<size_t>(planes_bytes(type, n_rows, n_cols)));
  planes_of(type).pack(raw, n_rows, n_cols, planes);
}

int64_t device_weight_bytes(const Weight& weight) {
  return has_planes(*weight.type) ? planes_bytes(*weight.type, row_count(weight), weight.n_cols)
                                  : weight.size_bytes;
}

WeightPlaces weight_places(std::span<const Weight> weights) {
  WeightPlaces places;
  for (const Weight& weight : weights) {
    if (!weight.values.empty()) {
      places.vector_offset_bytes[&weight] = places.total_bytes;
      places.total_bytes += aligned(static_cast<int64_t>(weight.values.size()) * 4);
    }
    places.offset_bytes[&weight] = places.total_bytes;
    places.total_bytes += aligned(device_weight_bytes(weight));
  }
  return places;
}

}  // namespace apr::cuda
