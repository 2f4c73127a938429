// Encoders for the tensor types whose fixtures the tests make themselves: simple and near, not the
// best ones. The scalar references of the type table decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace apr::test {

// ggml ids of the types that can be encoded.
inline constexpr uint32_t kTypeF32 = 0;
inline constexpr uint32_t kTypeF16 = 1;
inline constexpr uint32_t kTypeBf16 = 30;
inline constexpr uint32_t kTypeTq1_0 = 34;
inline constexpr uint32_t kTypeTq2_0 = 35;
inline constexpr uint32_t kTypeMxfp4 = 39;
inline constexpr uint32_t kTypeNvfp4 = 40;

// `value` in half precision, rounded to nearest even; beyond 65504 to infinity.
uint16_t to_f16(float value);
float from_f16(uint16_t bits);

// `values` as blocks of a type above; values: [n_blocks * block_elems] f32. Throws
// std::runtime_error for another type or a part of a block.
std::vector<std::byte> encode(uint32_t type_id, std::span<const float> values);

// The f32 values of blocks of any supported type, by the scalar reference.
std::vector<float> decode(uint32_t type_id, std::span<const std::byte> blocks);

// Multiplies every value of the blocks by `factor`, a power of two, through the blocks' own scales
// and thus exactly. Throws std::runtime_error where a scale cannot hold the product, or where the
// scales of the type are not known here.
void scale_exactly(uint32_t type_id, std::span<std::byte> blocks, float factor);

}  // namespace apr::test
