// The model's weights in device memory.
#pragma once

#include <unordered_map>
#include <vector>

#include "apr/model.h"
#include "cuda/handles.h"
#include "cuda/quant_rows.h"
#include "params.h"

namespace apr::cuda {

// Whether a type lies on the device as planes (kernels/quant/device.cuh): every block type. Plain
// ones lie as in the file.
bool has_planes(const QuantType& type);

// Of a matrix in the planes layout.
int64_t planes_bytes(const QuantType& type, int64_t n_rows, int64_t n_cols);

// Writes raw blocks [n_rows, n_cols] in the planes layout.
void pack_planes(const QuantType& type, const std::byte* raw, int64_t n_rows, int64_t n_cols,
                 std::byte* planes);

// Bytes of a weight on the device: planes or the file's bytes, and f32 of vectors.
int64_t device_weight_bytes(const Weight& weight);

class DeviceWeights {
 public:
  // Uploads `weights`, which are known by their address. Throws kBackendUnavailable.
  explicit DeviceWeights(std::span<const Weight> weights);

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
