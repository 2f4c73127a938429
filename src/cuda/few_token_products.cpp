#include "cuda/few_token_products.h"

#include <fmt/format.h>

#include <array>

#include "cuda/launch_matvec.h"
#include "matvec_rows_layout.cuh"
#include "matvec_rows_params.h"
#include "small_gemm_layout.cuh"
#include "small_gemm_params.h"

namespace apr::cuda {

FewTokenProducts::FewTokenProducts(const KernelLibrary& kernels, const Stream& stream,
                                   const DeviceFacts& device, const DeviceWeights& weights,
                                   FewTokensUse use)
    : kernels_(kernels),
      stream_(stream),
      weights_(weights),
      use_(use),
      tensor_cores_(device.cc_major >= 8),
      few_registers_(device.cc_major >= 10),
      n_sm_(device.n_sm),
      shared_bytes_(static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes) {}

std::string FewTokenProducts::describe(std::span<const ProjectionGroup> groups,
                                       HalfStore store) const {
  TierCase of{{}, store, tensor_cores_, use_, few_registers_};
  of.product.n_sm = n_sm_;
  of.product.shared_bytes = shared_bytes_;
  return describe_tiers(groups, of);
}

size_t FewTokenProducts::multiply(std::span<const Weight* const> weights, HalfStore store,
                                  const uint16_t* x, int64_t n_tokens, const ProductsTo& to,
                                  std::span<ProductColumns> columns) {
  const Weight& first = *weights[0];
  std::array<int64_t, kMostProductParts> part_rows{};
  size_t n_parts = 0;
  while (n_parts < weights.size() && n_parts < part_rows.size() &&
         weights[n_parts]->type == first.type) {
    part_rows[n_parts] = weights[n_parts]->n_rows;
    ++n_parts;
  }
  const TierCase of{{first.type, std::span(part_rows).first(n_parts), first.n_cols, n_tokens, n_sm_,
                     shared_bytes_, to.most_splits},
                    store,
                    tensor_cores_,
                    use_,
                    few_registers_};
  const TierChoice choice = choose_prefill_tier(of);
  switch (choice.tier) {
    case PrefillTier::kLibrary:
      return 0;
    case PrefillTier::kMatvec:
      launch_matvec_rows(choice.matvec, weights.first(n_parts), x, n_tokens, to, columns);
      break;
    case PrefillTier::kFused:
      launch_small_gemm(choice.fused, weights.first(n_parts), x, n_tokens, to, columns);
      break;
  }
  return n_parts;
}

template <class Params>
Params FewTokenProducts::params_for(std::span<const Weight* const> weights, int64_t tile_rows,
                                    int64_t n_splits, const uint16_t* x, int64_t n_tokens,
                                    const ProductsTo& to, std::span<ProductColumns> columns) const {
  Params params{};
  for (size_t part = 0; part < weights.size(); ++part) {
    const Weight& weight = *weights[part];
    params.parts[part] = {weights_.matrix(weight).data, columns[part].largest,
                          static_cast<int32_t>(weight.n_rows), params.n_tiles,
                          columns[part].first_col - columns[0].first_col};
    params.n_tiles += static_cast<int32_t>(divide_up(weight.n_rows, tile_rows));
    columns[part].n_splits = static_cast<int32_t>(n_splits);
  }
  params.x = x;
  params.products = to.data;
  params.stride = to.stride;
  params.split_stride = to.split_stride;
  params.n_parts = static_cast<int32_t>(weights.size());
  params.n_cols = static_cast<int32_t>(weights[0]->n_cols);
  params.n_tokens = static_cast<int32_t>(n_tokens);
  params.n_splits = static_cast<int32_t>(n_splits);
  return params;
}

void FewTokenProducts::launch_matvec_rows(const MatvecRowsShape& shape,
                                          std::span<const Weight* const> weights, const uint16_t* x,
                                          int64_t n_tokens, const ProductsTo& to,
                                          std::span<ProductColumns> columns) const {
  auto params = params_for<MatvecRowsParams>(weights, quant::kUnitRows, shape.n_splits, x, n_tokens,
                                             to, columns);
  params.n_col_warps = shape.n_col_warps;
  launch(kernels_,
         fmt::format("matvec_rows.{}.{}", weights[0]->type->name,
                     kTokenTile * matvec_rows_tiles(n_tokens)),
         {.grid_x = shape.n_blocks,
          .grid_y = static_cast<uint32_t>(shape.n_splits),
          .block_x = kMatvecWarps * 32,
          .shared_bytes = static_cast<uint32_t>(shape.shared_bytes),
          .overlap = true},
         stream_, params);
}

void FewTokenProducts::launch_small_gemm(const SmallGemmShape& shape,
                                         std::span<const Weight* const> weights, const uint16_t* x,
                                         int64_t n_tokens, const ProductsTo& to,
                                         std::span<ProductColumns> columns) const {
  auto params = params_for<SmallGemmParams>(weights, int64_t{32} << shape.row_warps_log2,
                                            shape.n_splits, x, n_tokens, to, columns);
  params.row_warps_log2 = shape.row_warps_log2;
  params.n_slots = shape.n_slots;
  launch(kernels_, fmt::format("small_gemm.{}", weights[0]->type->name),
         {.grid_x = shape.n_blocks,
          .grid_y = shape.n_token_tiles,
          .block_x = kSmallGemmWarps * 32,
          .shared_bytes = static_cast<uint32_t>(shape.shared_bytes),
          .overlap = true},
         stream_, params);
}

}  // namespace apr::cuda
