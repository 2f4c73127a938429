// The model's weights in device memory.
#pragma once

#include <span>

#include "apr/model.h"
#include "cuda/handles.h"
#include "cuda/planes.h"
#include "cuda/quant_rows.h"
#include "params.h"

namespace apr::cuda {

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
  WeightPlaces places_;
  DeviceBuffer memory_;
};

}  // namespace apr::cuda
