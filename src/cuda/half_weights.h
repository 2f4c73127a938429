// The 16-bit weights of mode f16, and the 8-bit ones of mode fp8: kept in device memory, or made
// for each product.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "cuda/dequantizer.h"
#include "cuda/projection_groups.h"

namespace apr::cuda {

class HalfWeights {
 public:
  // Matrices and their groups; the head's are never kept. `dequantizer` and `stream` must outlive
  // it. Nothing is made yet.
  HalfWeights(Dequantizer& dequantizer, const Stream& stream,
              std::span<const ProjectionGroup> groups);

  uint64_t cache_bytes() const { return places_.total_bytes(); }  // of all that can be kept

  // Makes all of them on the stream, without waiting, and keeps them; where they do not fit in
  // `free_bytes`, or memory runs out on the way, none is kept. Answers which, and says so once.
  HalfStoreChoice prewarm(uint64_t free_bytes);

  // Whether the matrix is E4M3, not f16.
  bool is_e4m3(const Weight& weight) const { return elem_bytes(weight) == 1; }
  int64_t elem_bytes(const Weight& weight) const { return places_.places.at(&weight).elem_bytes; }

  // [n_rows, n_cols] f16 or E4M3 scaled by the power of two of largest(); null where not kept.
  // Matrices of a group lie one behind the other.
  const std::byte* kept(const Weight& weight) const;

  // Rows of a matrix as kept() has them, made on the stream into `out`.
  void make(const Weight& weight, RowRange rows, std::byte* out);

  // max |value| of a matrix, one f32 on the device; found on the stream at the first call.
  const float* largest(const Weight& weight);

 private:
  struct Largest {
    size_t idx = 0;
    bool is_found = false;
  };

  Dequantizer& dequantizer_;
  HalfPlaces places_;
  std::unordered_map<const Weight*, Largest> largest_of_;
  std::vector<DeviceBuffer> buffers_;  // [layers]; empty: nothing is kept
  DeviceBuffer largest_;               // [matrices] f32
};

}  // namespace apr::cuda
