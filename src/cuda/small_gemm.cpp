#include "cuda/small_gemm.h"

#include <fmt/format.h>

#include <array>

#include "apr/error.h"
#include "cuda/error.h"
#include "cuda/launch_matvec.h"
#include "small_gemm_layout.cuh"

namespace apr::cuda {

SmallGemm::SmallGemm(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
                     const DeviceWeights& weights, std::span<const ProjectionGroup> groups)
    : kernels_(kernels),
      stream_(stream),
      weights_(weights),
      tensor_cores_(device.cc_major >= 8),
      n_sm_(device.n_sm),
      shared_bytes_(static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes) {
  const SmallGemmSizes sizes = small_gemm_sizes(groups, tensor_cores_, n_sm_);
  partials_ = DeviceBuffer(sizes.partials, "prefill scratch");
  arrived_ = DeviceBuffer(sizes.arrived, "prefill scratch");
  if (sizes.arrived > 0) {
    APR_CUDA(api().cudaMemsetAsync(arrived_.data(), 0, sizes.arrived, stream_.get()));
  }
}

size_t SmallGemm::takes(std::span<const Weight* const> weights, int64_t n_tokens,
                        HalfStore store) const {
  const QuantType* type = weights[0]->type;
  if (choose_prefill_tier({type, n_tokens, store, tensor_cores_, shared_bytes_}).tier !=
      PrefillTier::kFused) {
    return 0;
  }
  size_t n_weights = 1;
  while (n_weights < weights.size() && n_weights < kMostSmallGemmParts &&
         weights[n_weights]->type == type) {
    ++n_weights;
  }
  return n_weights;
}

void SmallGemm::multiply(std::span<const Weight* const> weights,
                         std::span<const float* const> largest, const uint16_t* x, int64_t n_tokens,
                         float* products, int64_t stride) {
  const Weight& first = *weights[0];
  std::array<int64_t, kMostSmallGemmParts> part_rows{};
  for (size_t part = 0; part < weights.size(); ++part) {
    part_rows[part] = weights[part]->n_rows;
  }
  const SmallGemmShape shape =
      small_gemm_shape(*first.type, std::span(part_rows).first(weights.size()), first.n_cols,
                       n_tokens, n_sm_, shared_bytes_);
  APR_CHECK(shape.n_slots > 0, "a product that is taken fits");
  SmallGemmParams params{};
  int32_t n_tiles = 0, first_col = 0;
  for (size_t part = 0; part < weights.size(); ++part) {
    const auto n_rows = static_cast<int32_t>(part_rows[part]);
    params.parts[part] = {weights_.matrix(*weights[part]).data, largest[part], n_rows, n_tiles,
                          first_col};
    n_tiles += static_cast<int32_t>(divide_up(n_rows, int64_t{32} << shape.row_warps_log2));
    first_col += n_rows;
  }
  params.x = x;
  params.products = products;
  params.stride = stride;
  params.partials = partials_.as<float>();
  params.arrived = arrived_.as<uint32_t>();
  params.n_parts = static_cast<int32_t>(weights.size());
  params.n_cols = static_cast<int32_t>(first.n_cols);
  params.n_tokens = static_cast<int32_t>(n_tokens);
  params.n_tiles = n_tiles;
  params.row_warps_log2 = shape.row_warps_log2;
  params.n_slots = shape.n_slots;
  launch(kernels_,
         fmt::format("small_gemm.{}{}", first.type->name,
                     n_tokens <= kScaledOutsideTokens ? ".outside" : ""),
         {.grid_x = shape.n_blocks,
          .grid_y = shape.n_token_tiles,
          .block_x = kSmallGemmWarps * 32,
          .shared_bytes = static_cast<uint32_t>(shape.shared_bytes),
          .overlap = true},
         stream_, params);
}

}  // namespace apr::cuda
