#include "cpu/fast/isa/decode.h"

#include "apr_quant_files.h"
#if HWY_TARGET == HWY_AVX3
#include "cpu/fast/isa/decode_avx512.h"
#endif

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

template <class T>
void decode_rows(const uint8_t* w, int64_t row_bytes, int64_t n_rows, int64_t n_blocks, float* out,
                 int64_t out_stride) {
  static_assert(kDecodeTileCols % T::kBlockElems == 0);
  for (int64_t row = 0; row < n_rows; ++row) {
    const uint8_t* block = w + row * row_bytes;
    float* to = out + row * out_stride;
    for (int64_t block_idx = 0; block_idx < n_blocks; ++block_idx) {
      BlockDecoder<T>::decode(block + block_idx * T::kBlockBytes, to + block_idx * T::kBlockElems);
    }
  }
}

}  // namespace

DecodeRowsFn decoder_of(uint32_t type_id) {
  switch (type_id) {
#define APR_QUANT_TYPE(id, name, Struct, file) \
  case id:                                     \
    return decode_rows<quant::Struct>;
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
    default:
      return nullptr;
  }
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
