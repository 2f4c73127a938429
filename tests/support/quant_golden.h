// The golden blocks of tests/data/quant and exact comparison of decoded values.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace apr::test {

// The bytes of a file; empty where it cannot be read.
inline std::vector<uint8_t> read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct QuantGolden {
  std::vector<uint8_t> blocks;  // [n_blocks, block_bytes]
  std::vector<float> values;    // [n_blocks, block_elems] f32, by gguf-py
};

// Empty where the type has none.
inline QuantGolden load_golden(std::string_view type_name) {
  const std::string base = fmt::format("{}/quant/{}", APR_TEST_DATA, type_name);
  const std::vector<uint8_t> f32 = read_bytes(base + ".f32");
  QuantGolden golden{read_bytes(base + ".blocks"), std::vector<float>(f32.size() / 4)};
  if (!f32.empty()) {
    std::memcpy(golden.values.data(), f32.data(), golden.values.size() * 4);
  }
  return golden;
}

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Nothing where the bit patterns are equal, else where they are not. `any_nan`: two NaNs are equal
// whatever their bits (which operand's payload survives is the compiler's choice).
inline std::string difference(std::span<const float> found, std::span<const float> expected,
                              int block_elems, bool any_nan = false) {
  if (found.size() != expected.size()) {
    return fmt::format("{} values, expected {}", found.size(), expected.size());
  }
  size_t n_bad = 0, first = 0;
  for (size_t i = found.size(); i-- > 0;) {
    const bool both_nan = found[i] != found[i] && expected[i] != expected[i];
    if (bits_of(found[i]) != bits_of(expected[i]) && !(any_nan && both_nan)) {
      ++n_bad;
      first = i;
    }
  }
  if (n_bad == 0) {
    return {};
  }
  const auto elems = static_cast<size_t>(block_elems);
  return fmt::format(
      "{} of {} values differ; first: block {}, element {}: {} ({:#010x}), expected "
      "{} ({:#010x})",
      n_bad, found.size(), first / elems, first % elems, found[first], bits_of(found[first]),
      expected[first], bits_of(expected[first]));
}

}  // namespace apr::test
