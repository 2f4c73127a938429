// GGUF images byte by byte, for files that GgufWriter would not write.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"

namespace apr::test {

inline constexpr uint32_t kF32 = 0;
inline constexpr uint32_t kQ8_0 = 8;

// A header of version 3.
inline ByteBuilder header(uint64_t n_tensors, uint64_t n_kv) {
  ByteBuilder out;
  out.put_text("GGUF").put<uint32_t>(3).put(n_tensors).put(n_kv);
  return out;
}

// A file of one key "k" up to the type of its value.
inline ByteBuilder one_key(GgufValueType type) {
  return header(0, 1).put_string("k").put(static_cast<uint32_t>(type));
}

// A tensor table entry; ne fastest axis first as in the file.
inline void put_tensor(ByteBuilder& out, std::string_view name, const std::vector<uint64_t>& ne,
                       uint32_t type_id, uint64_t offset_bytes) {
  out.put_string(name).put(static_cast<uint32_t>(ne.size()));
  for (const uint64_t axis : ne) {
    out.put(axis);
  }
  out.put(type_id).put(offset_bytes);
}

// A file of one tensor "t" with `data_bytes` bytes of data.
inline ByteBuilder one_tensor(const std::vector<uint64_t>& ne, uint32_t type_id,
                              uint64_t offset_bytes, size_t data_bytes) {
  ByteBuilder out = header(1, 0);
  put_tensor(out, "t", ne, type_id, offset_bytes);
  out.pad_to(32).put_bytes(std::vector<std::byte>(data_bytes));
  return out;
}

}  // namespace apr::test
