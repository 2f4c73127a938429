// Compiled once for each level, with APR_ISA_DECODERS naming the function. Nothing here may be
// shared between the levels by the linker: templates stand in the anonymous namespace.
#include "support/quant_isa.h"

#include "apr_quant_files.h"
#include "quant/dequantize.h"

namespace apr::test {
namespace {

template <class T>
void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
  quant::dequantize_blocks<T>(blocks, n_blocks, out);
}

}  // namespace

const IsaDecoder* APR_ISA_DECODERS() {
#define APR_QUANT_TYPE(id, name, Struct, file) {name, decode<quant::Struct>},
  static constexpr IsaDecoder kDecoders[] = {
#include "quant/type_rows.inc"
      {nullptr, nullptr},
  };
#undef APR_QUANT_TYPE
  return kDecoders;
}

}  // namespace apr::test
