// What device kernels add beside scale * quant, for the bounds of their tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "apr/quant.h"
#include "apr_quant_files.h"

namespace apr::test {

// |offset| of the weights of a block: what a kernel adds and subtracts beside the weight itself.
template <class T>
void offsets_of_block(const std::byte* block, float* out) {
  for (int elem = 0; elem < T::kBlockElems; ++elem) {
    if constexpr (T::kBlockElems > 1) {
      const quant::RawBlock<T> raw{reinterpret_cast<const uint8_t*>(block)};
      out[elem] = std::abs(T::affine(raw, elem / T::kGroupElems).offset);
    } else {
      out[elem] = 0.0F;
    }
  }
}

inline void block_offsets(const QuantType& type, const std::byte* block, float* out) {
  switch (type.id) {
#define APR_QUANT_TYPE(id, name, traits, file) \
  case id:                                     \
    return offsets_of_block<quant::traits>(block, out);
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
    default:
      FAIL() << type.name;
  }
}

}  // namespace apr::test
