#include "cuda/launch_matvec.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/quant_rows.h"
#include "cuda/quant_traits.h"
#include "matvec_layout.cuh"
#include "matvec_parts.h"

namespace apr::cuda {
namespace {

constexpr uint32_t kFmaWarps = 8;  // of a block

// Dynamic shared memory of a block.
int64_t mma_shared_bytes(const QuantType& type, int64_t n_cols) {
  const MatvecShared shared = matvec_shared(type);
  return staged_x_bytes(static_cast<int>(n_cols), shared.group_elems) + shared.ring_bytes;
}

}  // namespace

MatvecShared matvec_shared(const QuantType& type) {
  return visit_quant_type(type, []<class T>() -> MatvecShared {
    if constexpr (T::kBlockElems == 1) {
      return {0, 0, 0, false};
    } else {
      return {rings_and_grid_bytes<T>(), T::kGroupElems, quant::unit_bytes<T>(), T::kHasOffset};
    }
  });
}

MatvecSplit matvec_split(int64_t n_tiles, int64_t n_units, int n_sm, int n_weights) {
  // Warps of a tile wait for each other at its end, which costs about a unit (measured on an H200).
  constexpr int64_t kTileEndUnits = 1;
  MatvecSplit best{1, 1, INT64_MAX};
  for (int n_col_warps = kMatvecWarps; n_col_warps >= n_weights; n_col_warps /= 2) {
    const int64_t tiles_at_once = kMatvecWarps / n_col_warps;
    const int64_t n_blocks = std::min<int64_t>(n_sm, divide_up(n_tiles, tiles_at_once));
    const int64_t n_rounds = divide_up(n_tiles, n_blocks * tiles_at_once) *
                             (divide_up(n_units, n_col_warps / n_weights) + kTileEndUnits);
    if (n_rounds < best.n_rounds) {
      best = {n_col_warps, static_cast<uint32_t>(n_blocks), n_rounds};
    }
  }
  return best;
}

std::pair<MatvecSplit, MatvecSplit> matvec_pair_split(const MatvecWork& first,
                                                      const MatvecWork& second, int64_t n_units,
                                                      int n_sm) {
  std::pair<MatvecSplit, MatvecSplit> best;
  int64_t least_bytes = INT64_MAX;
  for (int n_of_first = 1; n_of_first < n_sm; ++n_of_first) {
    const std::pair split{matvec_split(first.n_tiles, n_units, n_of_first),
                          matvec_split(second.n_tiles, n_units, n_sm - n_of_first)};
    const int64_t bytes = std::max(split.first.n_rounds * first.unit_bytes,
                                   split.second.n_rounds * second.unit_bytes);
    if (bytes < least_bytes) {
      least_bytes = bytes;
      best = split;
    }
  }
  return best;
}

bool matvec_mma_fits(const QuantType& type, int64_t n_cols, const DeviceFacts& device) {
  return type.block_elems > 1 && device.cc_major >= 8 && n_cols % kScaleElems == 0 &&
         mma_shared_bytes(type, n_cols) + kStaticSharedBytes <=
             static_cast<int64_t>(device.shared_bytes_per_block);
}

void launch_matvec(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
                   const QuantType& type, MatvecParams params, bool swiglu, bool exact) {
  const WeightRef& weight = params.parts[0].w;
  const char* suffix = swiglu ? ".swiglu" : "";
  if (!exact && matvec_mma_fits(type, weight.n_cols, device)) {
    number_tiles(params, swiglu);
    const MatvecSplit split =
        matvec_split(params.n_tiles, quant::units_of(weight.n_cols), device.n_sm, swiglu ? 2 : 1);
    params.n_col_warps = split.n_col_warps;
    launch(kernels, fmt::format("matvec_mma.{}{}", type.name, suffix),
           {.grid_x = split.n_blocks,
            .block_x = kMatvecWarps * 32,
            .shared_bytes = static_cast<uint32_t>(mma_shared_bytes(type, weight.n_cols)),
            .overlap = true},
           stream, params);
    return;
  }
  const int n_launches = swiglu ? 1 : params.n_parts;
  for (int part = 0; part < n_launches; ++part) {
    MatvecParams one = params;
    one.parts[0] = params.parts[part];
    launch(kernels, fmt::format("matvec_fma.{}{}", type.name, suffix),
           {.grid_x = static_cast<uint32_t>(
                std::min(divide_up(one.parts[0].w.n_rows, kFmaWarps), int64_t{device.n_sm} * 4)),
            .block_x = kFmaWarps * 32,
            .shared_bytes = static_cast<uint32_t>(weight.n_cols * 4),
            .overlap = true},
           stream, one);
  }
}

bool matvec_pair_fits(const QuantType& first, const QuantType& second, int64_t n_cols,
                      const DeviceFacts& device) {
  return has_matvec_pair(first.name, second.name) && device.n_sm >= 2 &&
         matvec_mma_fits(first, n_cols, device) && matvec_mma_fits(second, n_cols, device);
}

void launch_matvec_pair(const KernelLibrary& kernels, const Stream& stream,
                        const DeviceFacts& device, const QuantType& first_type, MatvecParams first,
                        const QuantType& second_type, MatvecParams second) {
  const int64_t n_cols = first.parts[0].w.n_cols;
  number_tiles(first, false);
  number_tiles(second, false);
  const auto split = matvec_pair_split({first.n_tiles, matvec_shared(first_type).unit_bytes},
                                       {second.n_tiles, matvec_shared(second_type).unit_bytes},
                                       quant::units_of(n_cols), device.n_sm);
  first.n_col_warps = split.first.n_col_warps;
  second.n_col_warps = split.second.n_col_warps;
  launch(kernels, fmt::format("matvec_pair.{}.{}", first_type.name, second_type.name),
         {.grid_x = split.first.n_blocks + split.second.n_blocks,
          .block_x = kMatvecWarps * 32,
          .shared_bytes = static_cast<uint32_t>(std::max(mma_shared_bytes(first_type, n_cols),
                                                         mma_shared_bytes(second_type, n_cols))),
          .overlap = true},
         stream, MatvecPairParams{first, second, static_cast<int32_t>(split.first.n_blocks)});
}

}  // namespace apr::cuda
