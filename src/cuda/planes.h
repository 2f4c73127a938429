// How weights lie in device memory: plain host code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "apr/model.h"

namespace apr::cuda {

// Whether a type lies on the device as planes (kernels/quant/device.cuh): every block type. Plain
// ones lie as in the file.
bool has_planes(const QuantType& type);

// Of a matrix in the planes layout.
int64_t planes_bytes(const QuantType& type, int64_t n_rows, int64_t n_cols);

// Writes raw blocks [n_rows, n_cols] in the planes layout.
void pack_planes(const QuantType& type, const std::byte* raw, int64_t n_rows, int64_t n_cols,
                 std::byte* planes);

int64_t row_count(const Weight& weight);  // of all experts

// Bytes of a weight's matrix on the device: planes, or the file's bytes.
int64_t device_weight_bytes(const Weight& weight);

// Where each weight lies in the one piece of memory that holds them all.
struct WeightPlaces {
  std::unordered_map<const Weight*, int64_t> offset_bytes;         // of the matrix
  std::unordered_map<const Weight*, int64_t> vector_offset_bytes;  // of the f32 values
  int64_t total_bytes = 0;
};
WeightPlaces weight_places(std::span<const Weight> weights);

}  // namespace apr::cuda
