// Prefill products of few tokens: the file's weights are decoded on their way to the tensor cores
// (kernels/matvec_rows.cu, small_gemm.cu), where larger ones multiply 16-bit copies through cuBLAS.
#pragma once

#include <span>
#include <string>

#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/prefill_tier.h"
#include "cuda/weights.h"
#include "params.h"

namespace apr::cuda {

// Where products go, side by side.
struct ProductsTo {
  float* data = nullptr;     // [n_splits, n_tokens, stride] f32
  int64_t stride = 0;        // elements from one row to the next
  int64_t split_stride = 0;  // and from one split of the sums to the next
  int64_t most_splits = 1;
};

class FewTokenProducts {
 public:
  // What it is given must outlive it.
  FewTokenProducts(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
                   const DeviceWeights& weights, FewTokensUse use);

  // Multiplies as many of `weights`, from the first on, as one launch takes (neighbours of one
  // type) with x [n_tokens, n_cols] f16: products times the power of two of columns[].largest.
  // Answers how many, 0 where the first is cuBLAS's, and leaves the splits in `columns`. Throws
  // kBackendUnavailable.
  size_t multiply(std::span<const Weight* const> weights, HalfStore store, const uint16_t* x,
                  int64_t n_tokens, const ProductsTo& to, std::span<ProductColumns> columns);

  std::string describe(std::span<const ProjectionGroup> groups, HalfStore store) const;

 private:
  template <class Params>
  Params params_for(std::span<const Weight* const> weights, int64_t tile_rows, int64_t n_splits,
                    const uint16_t* x, int64_t n_tokens, const ProductsTo& to,
                    std::span<ProductColumns> columns) const;
  void launch_matvec_rows(const MatvecRowsShape& shape, std::span<const Weight* const> weights,
                          const uint16_t* x, int64_t n_tokens, const ProductsTo& to,
                          std::span<ProductColumns> columns) const;
  void launch_small_gemm(const SmallGemmShape& shape, std::span<const Weight* const> weights,
                         const uint16_t* x, int64_t n_tokens, const ProductsTo& to,
                         std::span<ProductColumns> columns) const;

  const KernelLibrary& kernels_;
  const Stream& stream_;
  const DeviceWeights& weights_;
  FewTokensUse use_;
  bool tensor_cores_, few_registers_;
  int n_sm_;
  int64_t shared_bytes_;
};

}  // namespace apr::cuda
