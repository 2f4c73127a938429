// Products of E4M3 matrices with f32 sums and results, through cuBLASLt.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "cuda/handles.h"

namespace apr::cuda {

class E4m3Gemm {
 public:
  // Both must outlive it; `workspace` is shared with other products of the stream. Throws
  // kBackendUnavailable: no cuBLASLt.
  E4m3Gemm(const Stream& stream, const DeviceBuffer& workspace);

  // products [n_tokens, stride] f32 = rows [n_tokens, n_cols] w [n_rows, n_cols]^T, of which
  // columns [0, n_rows) are written. n_rows, n_cols and n_tokens are multiples of kE4m3Multiple,
  // stride of 4, pointers 16-byte aligned. Throws kBackendUnavailable for a call that fails or a
  // shape that cuBLASLt has no algorithm for.
  void multiply(const void* w, int64_t n_rows, int64_t n_cols, const void* rows, int64_t n_tokens,
                float* products, int64_t stride);

 private:
  // What an algorithm is chosen by: sizes, and the powers of two up to 256 that addresses are
  // multiples of, not the addresses.
  struct Shape {
    int64_t n_rows, n_cols, n_tokens, stride;
    uint32_t w_align, rows_align, products_align;
    auto operator<=>(const Shape&) const = default;
  };
  struct Choice {
    MatrixLayout w, rows, products;
    cublasLtMatmulAlgo_t algorithm;
  };
  const Choice& choice(const Shape& shape);

  const Stream& stream_;
  const DeviceBuffer& workspace_;
  CublasLtHandle handle_;
  MatmulDesc desc_;
  MatmulPreference preference_;
  std::map<Shape, Choice> choices_;
};

}  // namespace apr::cuda
