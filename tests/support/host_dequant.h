// The dequant kernel run on the host: its threads one after the other.
#pragma once

#include "apr_quant_files.h"
#include "dequant_octet.cuh"
#include "support/dequant_problem.h"

namespace apr::test {

using DequantThread = void (*)(const DequantParams& params, int octet, int launch_row);

// A thread of the kernel of one type; null where the type has no such layout.
inline DequantThread host_dequant(const QuantType& type, bool planes, bool half) {
  constexpr DequantForm kF32 = DequantForm::kF32, kF16 = DequantForm::kF16;
#define APR_QUANT_TYPE(type_id, name, Traits, file)                                  \
  if (type.id == type_id) {                                                          \
    using T = quant::Traits;                                                         \
    if constexpr (T::kBlockElems > 1) {                                              \
      if (planes) {                                                                  \
        return half ? &dequant_octet<T, true, kF16> : &dequant_octet<T, true, kF32>; \
      }                                                                              \
    }                                                                                \
    return planes ? nullptr                                                          \
           : half ? &dequant_octet<T, false, kF16>                                   \
                  : &dequant_octet<T, false, kF32>;                                  \
  }
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
  return nullptr;
}

// The planes layout, by the contract of device.cuh alone; nothing for a plain type.
inline std::vector<uint8_t> host_planes(const QuantType& type, const uint8_t* raw, int64_t n_rows,
                                        int64_t n_cols) {
  std::vector<uint8_t> planes;
#define APR_QUANT_TYPE(type_id, name, Traits, file)                                             \
  if constexpr (quant::Traits::kBlockElems > 1) {                                               \
    using T = quant::Traits;                                                                    \
    if (type.id == type_id) {                                                                   \
      planes.resize(static_cast<size_t>(quant::planes_bytes<T>(n_rows, n_cols)));               \
      for (int64_t block = 0; block < n_rows * n_cols / T::kBlockElems; ++block) {              \
        const int64_t per_row = n_cols / T::kBlockElems;                                        \
        quant::copy_to_planes<T>(raw + block * T::kBlockBytes,                                  \
                                 quant::planes_block<T>(planes.data(), n_cols, block / per_row, \
                                                        static_cast<int>(block % per_row)));    \
      }                                                                                         \
    }                                                                                           \
  }
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
  return planes;
}

// Runs the kernel over all rows, `out` pointing past the front guard.
inline void run_host_dequant(const DequantProblem& problem, bool planes, bool half, float scale,
                             void* out) {
  const auto* raw = reinterpret_cast<const uint8_t*>(problem.raw.data());
  const std::vector<uint8_t> packed =
      planes ? host_planes(*problem.type, raw, problem.n_rows, problem.n_cols)
             : std::vector<uint8_t>();
  DequantParams params{};
  params.w = {planes ? packed.data() : raw, static_cast<int32_t>(problem.n_rows),
              static_cast<int32_t>(problem.n_cols)};
  params.out = out;
  params.n_cols = static_cast<int32_t>(problem.n_stored);
  params.scale = scale;
  const DequantThread thread = host_dequant(*problem.type, planes, half);
  for (int row = 0; row < static_cast<int>(problem.n_rows); ++row) {
    for (int octet = 0; octet < 256; ++octet) {  // a block of threads
      thread(params, octet, row);
    }
  }
}

// Nothing where the f32 kernel on the host is right.
inline std::string host_difference(const DequantProblem& problem, bool planes) {
  std::vector<uint32_t> output = unwritten_output<uint32_t>(problem);
  run_host_dequant(problem, planes, false, 1.0F, output.data() + kGuardElems);
  return difference(problem, output);
}

}  // namespace apr::test
