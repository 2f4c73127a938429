// The dequant kernels run on the GPU, by the name of their row.
#pragma once

#include "cuda/launch.h"
#include "cuda/weights.h"
#include "quant/device.cuh"
#include "support/dequant_problem.h"
#include "support/gpu.h"

namespace apr::test {

// "dequant.Q4_K.planes.f32"
inline std::string dequant_row(const QuantType& type, bool planes, bool half) {
  return fmt::format("dequant.{}.{}.{}", type.name, planes ? "planes" : "raw",
                     half ? "f16" : "f32");
}

inline std::vector<std::byte> device_layout(const DequantProblem& problem, bool planes) {
  if (!planes) {
    return problem.raw;
  }
  std::vector<std::byte> packed(
      static_cast<size_t>(cuda::planes_bytes(*problem.type, problem.n_rows, problem.n_cols)));
  cuda::pack_planes(*problem.type, problem.raw.data(), problem.n_rows, problem.n_cols,
                    packed.data());
  return packed;
}

// Decodes all rows into scratch that was never written, guards around it; answers the scratch.
template <class Elem>
std::vector<Elem> run_gpu_dequant(const cuda::KernelLibrary& kernels, std::string_view kernel,
                                  const DequantProblem& problem, bool planes, float scale = 1.0F) {
  constexpr uint32_t kThreads = 256;
  constexpr int64_t kMostRows = 65535;  // the second axis of a grid
  const cuda::DeviceBuffer weight =
      to_device<std::byte>(std::span<const std::byte>(device_layout(problem, planes)));
  const cuda::DeviceBuffer output =
      to_device<Elem>(std::span<const Elem>(unwritten_output<Elem>(problem)));
  const cuda::Stream stream = cuda::create_stream();
  DequantParams params{};
  params.w = {reinterpret_cast<const uint8_t*>(weight.data()), static_cast<int32_t>(problem.n_rows),
              static_cast<int32_t>(problem.n_cols)};
  params.n_cols = static_cast<int32_t>(problem.n_stored);
  params.scale = scale;
  for (int64_t first = 0; first < problem.n_rows; first += kMostRows) {
    params.first_row = static_cast<int32_t>(first);
    params.out = output.template as<Elem>() + kGuardElems + first * problem.n_stored;
    cuda::launch(
        kernels, kernel,
        {.grid_x = static_cast<uint32_t>((problem.n_cols + 8 * kThreads - 1) / (8 * kThreads)),
         .grid_y = static_cast<uint32_t>(std::min(kMostRows, problem.n_rows - first)),
         .block_x = kThreads},
        stream, params);
  }
  APR_CUDA(cuda::api().cudaStreamSynchronize(stream.get()));
  return to_host<Elem>(output);
}

// Nothing where the f32 kernel is right.
inline std::string gpu_difference(const cuda::KernelLibrary& kernels, std::string_view kernel,
                                  const DequantProblem& problem, bool planes) {
  return difference(problem, run_gpu_dequant<uint32_t>(kernels, kernel, problem, planes));
}

}  // namespace apr::test
