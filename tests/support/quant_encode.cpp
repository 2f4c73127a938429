#include "support/quant_encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "apr/quant.h"

namespace apr::test {
namespace {

const QuantType& type_row(uint32_t type_id) {
  const QuantType* type = find_quant_type(type_id);
  if (type == nullptr) {
    throw std::runtime_error(fmt::format("no type {}", type_id));
  }
  return *type;
}

void put_u16(std::byte* at, uint16_t value) {
  std::memcpy(at, &value, sizeof(value));
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0.0f;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// --- Ternary: d * {-1, 0, 1} ---

// The scale of ternary weight networks (Li, Zhang, Liu 2016): the mean magnitude of the values
// above 0.7 times the mean magnitude of all.
float ternary_scale(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += std::fabs(static_cast<double>(value));
  }
  const double threshold = 0.7 * sum / static_cast<double>(values.size());
  double sum_above = 0.0;
  int n_above = 0;
  for (const float value : values) {
    if (std::fabs(static_cast<double>(value)) > threshold) {
      sum_above += std::fabs(static_cast<double>(value));
      ++n_above;
    }
  }
  return n_above == 0 ? 0.0f : static_cast<float>(sum_above / n_above);
}

// The digits 0, 1, 2 for -d, 0, d.
std::array<uint8_t, 256> ternary_digits(std::span<const float> values, float d) {
  std::array<uint8_t, 256> digits{};
  for (size_t idx = 0; idx < digits.size(); ++idx) {
    const float ratio = d == 0.0f ? 0.0f : values[idx] / d;
    digits[idx] = ratio > 0.5f ? 2 : ratio < -0.5f ? 0 : 1;
  }
  return digits;
}

// Digits in base 3, first digit highest, as a fraction of 256 rounded up; `stride` apart.
std::byte pack_base3(const uint8_t* digits, int n_digits, int stride) {
  int value = 0;
  for (int digit_idx = 0; digit_idx < 5; ++digit_idx) {
    value = value * 3 + (digit_idx < n_digits ? digits[digit_idx * stride] : 0);
  }
  return static_cast<std::byte>((value * 256 + 242) / 243);
}

void encode_tq1_0(std::span<const float> values, std::byte* block) {
  const float d = from_f16(to_f16(ternary_scale(values)));
  const std::array<uint8_t, 256> digits = ternary_digits(values, d);
  for (int byte_idx = 0; byte_idx < 32; ++byte_idx) {
    block[byte_idx] = pack_base3(&digits[static_cast<size_t>(byte_idx)], 5, 32);
  }
  for (int byte_idx = 0; byte_idx < 16; ++byte_idx) {
    block[32 + byte_idx] = pack_base3(&digits[static_cast<size_t>(160 + byte_idx)], 5, 16);
  }
  for (int byte_idx = 0; byte_idx < 4; ++byte_idx) {
    block[48 + byte_idx] = pack_base3(&digits[static_cast<size_t>(240 + byte_idx)], 4, 4);
  }
  put_u16(block + 52, to_f16(d));
}

void encode_tq2_0(std::span<const float> values, std::byte* block) {
  const float d = from_f16(to_f16(ternary_scale(values)));
  const std::array<uint8_t, 256> digits = ternary_digits(values, d);
  for (size_t byte_idx = 0; byte_idx < 64; ++byte_idx) {
    const uint8_t* first = &digits[byte_idx / 32 * 128 + byte_idx % 32];
    block[byte_idx] =
        static_cast<std::byte>(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
  }
  put_u16(block + 64, to_f16(d));
}

// --- Four-bit floats: scale * E2M1 ---

constexpr std::array<float, 8> kE2m1 = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

// The nearest E2M1 code of `value` / `scale`.
uint8_t nearest_e2m1(float value, float scale) {
  uint8_t best = 0;
  for (uint8_t code = 1; code < kE2m1.size(); ++code) {
    if (std::fabs(std::fabs(value) - scale * kE2m1[code]) <
        std::fabs(std::fabs(value) - scale * kE2m1[best])) {
      best = code;
    }
  }
  return static_cast<uint8_t>(best | (value < 0.0f && best != 0 ? 8 : 0));
}

// Codes of 2n values: value j in the low nibble of byte j, value n + j in the high one.
void put_e2m1(std::span<const float> values, float scale, std::byte* out) {
  const size_t half = values.size() / 2;
  for (size_t idx = 0; idx < half; ++idx) {
    out[idx] = static_cast<std::byte>(nearest_e2m1(values[idx], scale) |
                                      nearest_e2m1(values[half + idx], scale) << 4);
  }
}

// Scale 2^(e - 127), the largest value in [4, 8) of it.
void encode_mxfp4(std::span<const float> values, std::byte* block) {
  const float largest = largest_magnitude(values);
  const int exponent = largest == 0.0f ? 0 : std::clamp(std::ilogb(largest) - 2 + 127, 0, 254);
  block[0] = static_cast<std::byte>(exponent);
  put_e2m1(values, std::ldexp(1.0f, exponent - 127), block + 1);
}

// The values of the E4M3 codes 0..0x7E (bias 7; 0x7F is no number), ascending.
const std::array<float, 127>& e4m3_values() {
  static const std::array<float, 127> values = [] {
    std::array<float, 127> table{};
    for (int code = 0; code < 127; ++code) {
      const int exponent = code >> 3, mantissa = code & 7;
      table[static_cast<size_t>(code)] =
          exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    }
    return table;
  }();
  return values;
}

// Scales in E4M3 (bias 7) per 16 values, the largest value at about 6 of it.
void encode_nvfp4(std::span<const float> values, std::byte* block) {
  for (size_t sub_idx = 0; sub_idx < 4; ++sub_idx) {
    const auto sub_values = values.subspan(16 * sub_idx, 16);
    const float wanted = largest_magnitude(sub_values) / 6.0f;
    const auto& scales = e4m3_values();
    const auto above = std::lower_bound(scales.begin(), scales.end() - 1, wanted);
    const bool below_is_nearer =
        above != scales.begin() && wanted - *std::prev(above) < *above - wanted;
    const auto best = below_is_nearer ? std::prev(above) : above;
    block[sub_idx] = static_cast<std::byte>(best - scales.begin());
    put_e2m1(sub_values, *best, block + 4 + 8 * sub_idx);
  }
}

// --- Plain floats ---

void encode_f32(std::span<const float> values, std::byte* block) {
  std::memcpy(block, values.data(), sizeof(float));
}

void encode_f16(std::span<const float> values, std::byte* block) {
  put_u16(block, to_f16(values[0]));
}

// The upper half of the f32, rounded to nearest even; finite values only.
void encode_bf16(std::span<const float> values, std::byte* block) {
  const uint32_t bits = std::bit_cast<uint32_t>(values[0]);
  put_u16(block, static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16));
}

struct Encoder {
  uint32_t type_id;
  void (*encode_block)(std::span<const float> values, std::byte* block);
};

constexpr Encoder kEncoders[] = {
    {kTypeF32, encode_f32},     {kTypeF16, encode_f16},     {kTypeBf16, encode_bf16},
    {kTypeTq1_0, encode_tq1_0}, {kTypeTq2_0, encode_tq2_0}, {kTypeMxfp4, encode_mxfp4},
    {kTypeNvfp4, encode_nvfp4},
};

// Where the f16 scales of a block lie.
struct ScaleBytes {
  std::string_view type_name;
  std::vector<int> at_bytes;
};

const std::vector<ScaleBytes>& scale_table() {
  static const std::vector<ScaleBytes> table = {
      {"F16", {0}},    {"Q4_0", {0}},      {"Q4_1", {0, 2}}, {"Q5_0", {0}},    {"Q5_1", {0, 2}},
      {"Q8_0", {0}},   {"Q2_K", {80, 82}}, {"Q3_K", {108}},  {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}},
      {"Q6_K", {208}}, {"IQ2_XXS", {0}},   {"IQ2_XS", {0}},  {"IQ2_S", {0}},   {"IQ3_XXS", {0}},
      {"IQ3_S", {0}},  {"IQ1_S", {0}},     {"IQ4_NL", {0}},  {"IQ4_XS", {0}},  {"TQ1_0", {52}},
      {"TQ2_0", {64}},
  };
  return table;
}

}  // namespace

uint16_t to_f16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return 0x7E00;
  }
  if (magnitude >= 65520.0f) {
    return static_cast<uint16_t>(sign | 0x7C00);
  }
  if (magnitude < 0x1p-14f) {
    return static_cast<uint16_t>(sign |
                                 static_cast<int>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  const int exponent = std::ilogb(magnitude);
  // 1024..2048; a mantissa of 2048 carries into the exponent by the addition.
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 15) << 10) + mantissa - 1024));
}

float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

std::vector<std::byte> encode(uint32_t type_id, std::span<const float> values) {
  const QuantType& type = type_row(type_id);
  const auto encoder = std::find_if(std::begin(kEncoders), std::end(kEncoders),
                                    [&](const Encoder& row) { return row.type_id == type_id; });
  const size_t block_elems = static_cast<size_t>(type.block_elems);
  if (encoder == std::end(kEncoders) || values.size() % block_elems != 0) {
    throw std::runtime_error(
        fmt::format("cannot encode {} values as {}", values.size(), type.name));
  }
  const size_t n_blocks = values.size() / block_elems;
  std::vector<std::byte> blocks(n_blocks * static_cast<size_t>(type.block_bytes));
  for (size_t block_idx = 0; block_idx < n_blocks; ++block_idx) {
    encoder->encode_block(values.subspan(block_idx * block_elems, block_elems),
                          blocks.data() + block_idx * static_cast<size_t>(type.block_bytes));
  }
  return blocks;
}

std::vector<float> decode(uint32_t type_id, std::span<const std::byte> blocks) {
  const QuantType& type = type_row(type_id);
  const int64_t n_blocks = static_cast<int64_t>(blocks.size()) / type.block_bytes;
  std::vector<float> values(static_cast<size_t>(n_blocks * type.block_elems));
  type.dequantize(blocks.data(), n_blocks, values.data());
  return values;
}

void scale_exactly(uint32_t type_id, std::span<std::byte> blocks, float factor) {
  const QuantType& type = type_row(type_id);
  if (type_id == kTypeF32) {
    std::vector<float> values = decode(type_id, blocks);
    for (float& value : values) {
      value *= factor;
    }
    std::memcpy(blocks.data(), values.data(), blocks.size());
    return;
  }
  const auto row =
      std::find_if(scale_table().begin(), scale_table().end(),
                   [&](const ScaleBytes& scales) { return scales.type_name == type.name; });
  if (row == scale_table().end()) {
    throw std::runtime_error(fmt::format("the scales of {} are not known", type.name));
  }
  for (size_t block_at = 0; block_at < blocks.size();
       block_at += static_cast<size_t>(type.block_bytes)) {
    for (const int at_byte : row->at_bytes) {
      std::byte* at = blocks.data() + block_at + at_byte;
      uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof(bits));
      const float scaled = from_f16(bits) * factor;
      if (from_f16(to_f16(scaled)) != scaled) {
        throw std::runtime_error(fmt::format("a scale of {} cannot hold {}", type.name, scaled));
      }
      put_u16(at, to_f16(scaled));
    }
  }
}

}  // namespace apr::test
