// The reference decoders as compiled for one x86-64 level, the way the CPU kernels inline them.
#pragma once

#include <cstdint>

namespace apr::test {

struct IsaDecoder {
  const char* type_name;
  void (*decode)(const uint8_t* blocks, int64_t n_blocks, float* out);
};

// One per row of the type table, then a null name.
const IsaDecoder* isa_decoders_v2();
const IsaDecoder* isa_decoders_v3();
const IsaDecoder* isa_decoders_v4();

}  // namespace apr::test
