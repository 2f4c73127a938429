// The dequant kernel run on the host: its threads one after the other.
#pragma once

#include "apr_quant_files.h"
#include "dequant_octet.cuh"
#include "support/dequant_problem.h"

namespace apr::test {

using DequantThread = void (*)(const DequantParams& params, int octet, int launch_row);

// A thread of the kernel of one type; null where the type has no such layout.
inline DequantThread host_dequant(const QuantType& type, bool planes, bool half) {
#define APR_QUANT_TYPE(type_id, name, Traits, file)                                   \
  if (type.id == type_id) {                                                           \
    using T = quant::Traits;                                                          \
    if constexpr (T::kBlockElems > 1) {                                               \
      if (planes) {                                                                   \
        return half ? &dequant_octet<T, true, true> : &dequant_octet<T, true, false>; \
      }                                                                               \
    }                                                                                 \
    return planes ? nullptr                                                           \
           : half ? &dequant_octet<T, false, true>                                    \
                  : &dequant_octet<T, false, false>;                                  \
  }
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
  return nullptr;
}

template <class T, int kSegment = 0>
void copy_planes(const uint8_t* raw, int64_t n_blocks, std::vector<uint8_t>& planes) {
  if constexpr (kSegment == 0) {
    planes.resize(static_cast<size_t>(quant::plane_offset_bytes<T, T::kSegments>(n_blocks)));
  }
  if constexpr (kSegment < T::kSegments) {
    for (int64_t block = 0; block < n_blocks; ++block) {
      std::memcpy(planes.data() + quant::plane_offset_bytes<T, kSegment>(n_blocks) +
                      block * T::kSegmentBytes[kSegment],
                  raw + block * T::kBlockBytes + quant::segment_offset_bytes<T>(kSegment),
                  static_cast<size_t>(T::kSegmentBytes[kSegment]));
    }
    copy_planes<T, kSegment + 1>(raw, n_blocks, planes);
  }
}

// The planes layout, by the contract of device.cuh alone; the raw bytes of a plain type.
inline std::vector<uint8_t> host_planes(const QuantType& type, const uint8_t* raw,
                                        int64_t n_blocks) {
  std::vector<uint8_t> planes;
#define APR_QUANT_TYPE(type_id, name, Traits, file)      \
  if constexpr (quant::Traits::kBlockElems > 1) {        \
    if (type.id == type_id) {                            \
      copy_planes<quant::Traits>(raw, n_blocks, planes); \
    }                                                    \
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
      planes ? host_planes(*problem.type, raw, problem.n_blocks()) : std::vector<uint8_t>();
  const DequantParams params{
      {planes ? packed.data() : raw, problem.n_blocks(), static_cast<int32_t>(problem.n_rows),
       static_cast<int32_t>(problem.n_cols)},
      out,
      0,
      static_cast<int32_t>(problem.n_stored),
      scale};
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
