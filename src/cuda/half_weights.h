// The 16-bit weights of mode f16: kept in device memory, or made for each product.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "cuda/dequantizer.h"
#include "cuda/prefill_gemm.h"

namespace apr::cuda {

// Matrices that one stage multiplies with one input, in order.
struct ProjectionGroup {
  int layer_idx = -1;
  bool every_row = true;  // of the chunk; false: the head, which logit rows alone meet
  std::vector<const Weight*> weights;
};

class HalfWeights {
 public:
  // Matrices and their groups; the head's are never kept. `dequantizer` and `stream` must outlive
  // it. Nothing is made yet.
  HalfWeights(Dequantizer& dequantizer, const Stream& stream,
              std::span<const ProjectionGroup> groups);

  uint64_t cache_bytes() const { return cache_bytes_; }  // of all that can be kept

  // Makes all of them on the stream, without waiting, and keeps them; where they do not fit in
  // `free_bytes`, or memory runs out on the way, none is kept. Answers which, and says so once.
  HalfStoreChoice prewarm(uint64_t free_bytes);

  // [n_rows, n_cols] f16 scaled by the power of two of largest(); null where not kept. Matrices of
  // a group lie one behind the other.
  const uint16_t* kept(const Weight& weight) const;

  // Rows of a matrix as kept() has them, made on the stream into `out`.
  void make(const Weight& weight, RowRange rows, uint16_t* out);

  // max |value| of a matrix, one f32 on the device; found on the stream at the first call.
  const float* largest(const Weight& weight);

 private:
  struct Entry {
    int64_t layer = -1;  // of buffers_; -1: never kept
    int64_t offset_bytes = 0;
    size_t largest_idx = 0;
    bool largest_found = false;
  };

  Dequantizer& dequantizer_;
  std::vector<const Weight*> order_;
  std::unordered_map<const Weight*, Entry> entries_;
  std::vector<uint64_t> layer_bytes_;  // [layers]
  std::vector<DeviceBuffer> buffers_;  // [layers]; empty: nothing is kept
  DeviceBuffer largest_;               // [order_] f32
  uint64_t cache_bytes_ = 0;
};

}  // namespace apr::cuda
