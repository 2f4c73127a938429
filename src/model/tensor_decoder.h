// A way to decode weights whose values are compared, bit for bit, with the scalar reference's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apr/model.h"

namespace apr {

// All rows of a weight, of all its experts, count from 0.
class TensorDecoder {
 public:
  virtual ~TensorDecoder() = default;

  virtual std::string device_name() const = 0;

  // How this decoder has weights of `type` in memory: "planes", "raw"; at least one.
  virtual std::vector<std::string> layouts(const QuantType& type) const = 0;

  // The weights that decode() is called for until the next call; known by their address. Throws
  // kBackendUnavailable.
  virtual void load(std::span<const Weight> weights) = 0;

  // Rows [first_row, first_row + n_rows), first_row a multiple of 16, in one of layouts(): out
  // [n_rows, n_cols] f32. Throws kBackendUnavailable.
  virtual void decode(const Weight& weight, const std::string& layout, int64_t first_row,
                      int64_t n_rows, float* out) = 0;
};

}  // namespace apr
