#include "cpu/fast/isa/decode.h"

#include "apr_quant_files.h"
#if HWY_TARGET == HWY_AVX3
#include "cpu/fast/isa/decode_avx512.h"
#elif HWY_TARGET == HWY_AVX2
#include "cpu/fast/isa/decode_avx2.h"
#endif

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

template <class T>
void decode_rows(const uint8_t* w, int64_t row_bytes, int64_t n_rows, int64_t n_blocks, float* out,
                 int64_t out_stride) {
  static_assert(kDecodeTileCols % T::kBlockElems == 0);
  for (int64_t row = 0; row < n_rows; ++row) {
    BlockDecoder<T>::decode(w + row * row_bytes, n_blocks, out + row * out_stride);
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
