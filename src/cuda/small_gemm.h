// Prefill products of few tokens: the file's weights are decoded on their way to the tensor cores
// (kernels/small_gemm.cu), where larger ones multiply 16-bit copies through cuBLAS.
#pragma once

#include <span>
#include <string>

#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/prefill_tier.h"
#include "cuda/weights.h"
#include "small_gemm_params.h"

namespace apr::cuda {

class SmallGemm {
 public:
  // Scratch for products of `groups`. What it is given must outlive it. Throws kBackendUnavailable.
  SmallGemm(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
            const DeviceWeights& weights, std::span<const ProjectionGroup> groups);

  // How many of `weights`, from the first on, one launch can multiply: neighbours of one type; 0:
  // the first is the library's.
  size_t takes(std::span<const Weight* const> weights, int64_t n_tokens, HalfStore store) const;

  std::string describe(std::span<const ProjectionGroup> groups, HalfStore store) const {
    return describe_tiers(groups, store, tensor_cores_, shared_bytes_);
  }

  // products [n_tokens, stride] = x w^T times the power of two of each matrix, side by side, for
  // weights that it takes; `largest` of each. Throws kBackendUnavailable.
  void multiply(std::span<const Weight* const> weights, std::span<const float* const> largest,
                const uint16_t* x, int64_t n_tokens, float* products, int64_t stride);

 private:
  const KernelLibrary& kernels_;
  const Stream& stream_;
  const DeviceWeights& weights_;
  bool tensor_cores_;
  int n_sm_;
  int64_t shared_bytes_;
  DeviceBuffer partials_, arrived_;
};

}  // namespace apr::cuda
