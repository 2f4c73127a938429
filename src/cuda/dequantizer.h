// Launches of kernels/dequant.cu: rows of matrices to f32, f16 or E4M3, and the largest value of
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "cuda/launch.h"
#include "cuda/weights.h"

namespace apr::cuda {

// What of `weights` the kernels of `rows` cannot decode: "no f32 dequant kernel for Q4_K
// (blk.0.attn_q.weight)"; nothing where they can all. F32 needs no f32 kernel.
std::optional<std::string> missing_dequant(std::span<const Weight> weights,
                                           std::span<const KernelRow> rows);

// Launches row `kernel` of kernels/dequant.cu over n_rows rows from params.first_row on, as many at
// a time as a grid has; params.out steps out_row_bytes a row. Answers how many launches that took.
int64_t launch_dequant(const KernelLibrary& kernels, const Stream& stream,
                       const std::string& kernel, DequantParams params, int64_t n_rows,
                       int64_t out_row_bytes);

struct RowRange {
  int64_t first = 0, n_rows = 0;
};

class Dequantizer {
 public:
  // All three must outlive it.
  Dequantizer(const KernelLibrary& kernels, const Stream& stream, const DeviceWeights& weights)
      : kernels_(kernels), stream_(stream), weights_(weights) {}

  // out [rows.n_rows, n_cols] f32, 16-byte aligned: bit for bit the scalar reference's values.
  void to_f32(const Weight& weight, RowRange rows, float* out);

  // out [rows.n_rows, n_cols] f16, 16-byte aligned: values by the power of two that brings
  // `largest`, one f32 on the device, to [2^13, 2^14).
  void to_f16(const Weight& weight, RowRange rows, const float* largest, uint16_t* out);

  // As to_f16, to E4M3 with the largest value in [2^7, 2^8).
  void to_e4m3(const Weight& weight, RowRange rows, const float* largest, uint8_t* out);

  // largest = max |value|, of a stack over all experts; one f32 on the device, zero before.
  void find_largest(const Weight& weight, float* largest);

  using Launches = std::map<std::string, int64_t, std::less<>>;
  const Launches& launches() const { return launches_; }  // so far, by kernel row

 private:
  // `out` steps out_row_bytes a row.
  void launch_over_rows(const std::string& kernel, const Weight& weight, RowRange rows,
                        std::byte* out, int64_t out_row_bytes, const float* largest);

  const KernelLibrary& kernels_;
  const Stream& stream_;
  const DeviceWeights& weights_;
  Launches launches_;
};

}  // namespace apr::cuda
