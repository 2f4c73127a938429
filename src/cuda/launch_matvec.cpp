#include "cuda/launch_matvec.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/quant_traits.h"
#include "matvec_layout.cuh"

namespace apr::cuda {
namespace {

constexpr uint32_t kFmaWarps = 8;  // of a block

}  // namespace

MatvecShared matvec_shared(const QuantType& type) {
  return visit_quant_type(type, []<class T>() -> MatvecShared {
    if constexpr (T::kBlockElems == 1) {
      return {0, 0};
    } else {
      return {rings_and_grid_bytes<T>(), T::kGroupElems};
    }
  });
}

MatvecSplit matvec_split(int64_t n_tiles, int64_t n_units, int n_sm) {
  MatvecSplit best{1, 1};
  int64_t fewest = INT64_MAX;
  for (int n_col_warps = kMatvecWarps; n_col_warps >= 1; n_col_warps /= 2) {
    const int64_t tiles_at_once = kMatvecWarps / n_col_warps;
    const int64_t n_blocks = std::min<int64_t>(n_sm, divide_up(n_tiles, tiles_at_once));
    const int64_t rounds =
        divide_up(n_tiles, n_blocks * tiles_at_once) * divide_up(n_units, n_col_warps);
    if (rounds < fewest) {
      fewest = rounds;
      best = {n_col_warps, static_cast<uint32_t>(n_blocks)};
    }
  }
  return best;
}

bool matvec_mma_fits(const QuantType& type, int64_t n_cols, const DeviceFacts& device) {
  const MatvecShared shared = matvec_shared(type);
  return shared.ring_bytes > 0 && device.cc_major >= 8 && n_cols % kScaleElems == 0 &&
         staged_x_bytes(static_cast<int>(n_cols), shared.group_elems) + shared.ring_bytes +
                 kStaticSharedBytes <=
             static_cast<int64_t>(device.shared_bytes_per_block);
}

void launch_matvec(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
                   const QuantType& type, MatvecParams params, bool swiglu, bool exact) {
  const WeightRef& weight = params.parts[0].w;
  const char* suffix = swiglu ? ".swiglu" : "";
  if (!exact && matvec_mma_fits(type, weight.n_cols, device)) {
    int64_t n_tiles = 0;
    for (int part = 0; part < (swiglu ? 1 : params.n_parts); ++part) {
      n_tiles += divide_up(params.parts[part].w.n_rows, quant::kUnitRows);
    }
    const MatvecSplit split = matvec_split(n_tiles, quant::units_of(weight.n_cols), device.n_sm);
    params.n_col_warps = split.n_col_warps;
    const MatvecShared shared = matvec_shared(type);
    launch(kernels, fmt::format("matvec_mma.{}{}", type.name, suffix),
           {.grid_x = split.n_blocks,
            .block_x = kMatvecWarps * 32,
            .shared_bytes = static_cast<uint32_t>(
                staged_x_bytes(weight.n_cols, shared.group_elems) + shared.ring_bytes),
            .overlap = true},
           stream, params);
    return;
  }
  const int n_launches = swiglu ? 1 : params.n_parts;
  for (int part = 0; part < n_launches; ++part) {
    MatvecParams one = params;
    one.parts[0] = params.parts[part];
    one.n_parts = swiglu ? 2 : 1;
    launch(kernels, fmt::format("matvec_fma.{}{}", type.name, suffix),
           {.grid_x = static_cast<uint32_t>(
                std::min(divide_up(one.parts[0].w.n_rows, kFmaWarps), int64_t{device.n_sm} * 4)),
            .block_x = kFmaWarps * 32,
            .shared_bytes = static_cast<uint32_t>(weight.n_cols * 4),
            .overlap = true},
           stream, one);
  }
}

}  // namespace apr::cuda
