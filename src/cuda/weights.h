// The model's weights in device memory.
#pragma once

#include <unordered_map>
#include <vector>

#include "apr/model.h"
#include "cuda/handles.h"
#include "cuda/quant_rows.h"
#include "params.h"

namespace apr::cuda {

// Bytes of a weight on the device: planes of block types (kernels/quant/device.cuh), the file's
// bytes of plain ones, f32 of vectors.
int64_t device_weight_bytes(const Weight& weight);

// The planes layout of raw blocks; `segments`: bytes of a block's segments, in file order.
void pack_planes(const std::byte* raw, int64_t n_blocks, std::span<const int> segments,
                 std::byte* planes);

// The segments of a block type, in bytes; empty for a plain type.
std::span<const int> block_segments(const QuantType& type);

class DeviceWeights {
 public:
  // Uploads every weight of `model`. Throws kBackendUnavailable.
  explicit DeviceWeights(const Model& model);

  // The matrix of a weight; a rank-1 weight has one row.
  WeightRef matrix(const Weight& weight) const;
  // The f32 values of a vector; null for a null weight.
  const float* vector(const Weight* weight) const;
  int64_t size_bytes() const { return static_cast<int64_t>(memory_.size_bytes()); }

 private:
  DeviceBuffer memory_;
  std::unordered_map<const Weight*, int64_t> offset_bytes_;         // of the matrix
  std::unordered_map<const Weight*, int64_t> vector_offset_bytes_;  // of the f32 values
};

}  // namespace apr::cuda
