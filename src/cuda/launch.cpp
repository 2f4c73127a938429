#include "cuda/launch.h"

#include "cuda/error.h"

namespace apr::cuda {

void launch_kernel(const KernelLibrary& kernels, std::string_view name, const LaunchConfig& config,
                   const Stream& stream, const void* params) {
  CUlaunchAttribute overlap{};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig launch{};
  launch.gridDimX = config.grid_x;
  launch.gridDimY = config.grid_y;
  launch.gridDimZ = config.grid_z;
  launch.blockDimX = config.block_x;
  launch.blockDimY = 1;
  launch.blockDimZ = 1;
  launch.sharedMemBytes = config.shared_bytes;
  launch.hStream = stream.get();
  launch.attrs = &overlap;
  launch.numAttrs = config.overlap && kernels.can_overlap() ? 1 : 0;
  void* arguments[] = {const_cast<void*>(params)};  // the driver only reads them
  APR_CUDA(api().cuLaunchKernelEx(&launch, kernels.find(name), arguments, nullptr));
}

}  // namespace apr::cuda
