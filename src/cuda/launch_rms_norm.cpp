#include "cuda/launch_rms_norm.h"

#include <algorithm>

#include "apr/error.h"

namespace apr::cuda {
namespace {

constexpr int32_t kNormWarpThreads = 32;
constexpr int32_t kNormMostThreads = 1024;
constexpr int64_t kMostRows = 0x7fffffff;  // the first axis of a grid
constexpr uintptr_t kVectorBytes = 16;
constexpr int32_t kNormVectorElems = 4;

bool aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace

RmsNormLaunch config_for(const RmsNormParams& params, int64_t n_rows) {
  const bool vectors = params.dim % kNormVectorElems == 0 && aligned(params.x) &&
                       aligned(params.weight) && aligned(params.y);
  // A thread for each vector of the row, in whole warps.
  const int32_t n_vectors = vectors ? params.dim / kNormVectorElems : params.dim;
  const int32_t n_warps = (n_vectors + kNormWarpThreads - 1) / kNormWarpThreads;
  RmsNormLaunch launch{vectors ? "rms_norm.vec4" : "rms_norm.scalar", {}};
  launch.config.grid_x = static_cast<uint32_t>(n_rows);
  launch.config.block_x =
      static_cast<uint32_t>(std::min(n_warps * kNormWarpThreads, kNormMostThreads));
  launch.config.overlap = true;
  return launch;
}

void launch_rms_norm(const KernelLibrary& kernels, const Stream& stream,
                     const RmsNormParams& params, int64_t n_rows) {
  APR_CHECK(n_rows >= 1 && n_rows <= kMostRows && params.dim >= 1, "rms_norm of no row");
  const RmsNormLaunch how = config_for(params, n_rows);
  launch(kernels, how.kernel, how.config, stream, params);
}

}  // namespace apr::cuda
