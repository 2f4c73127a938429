// The device part of every quant type, run on the host, in both layouts: bit for bit the reference.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "apr/quant.h"
#include "apr_quant_files.h"
#include "support/quant_golden.h"

namespace apr {
namespace {

template <class T>
concept HasDevicePart = requires {
  T::kQuantBias;
};

std::vector<uint8_t> blocks_of(const QuantType& type) {
  const std::vector<uint8_t> golden = test::load_golden(type.name).blocks;
  std::vector<uint8_t> blocks = golden;
  std::mt19937 random(7);
  for (int extra = 0; extra < 500; ++extra) {  // any bytes are valid blocks
    for (int byte = 0; byte < type.block_bytes; ++byte) {
      blocks.push_back(static_cast<uint8_t>(random()));
    }
  }
  return blocks;
}

// The planes layout of raw blocks.
template <class T, int kSegment = 0>
void add_planes(const std::vector<uint8_t>& raw, int64_t n_blocks, std::vector<uint8_t>& planes) {
  if constexpr (kSegment < T::kSegments) {
    for (int64_t block = 0; block < n_blocks; ++block) {
      std::memcpy(planes.data() + quant::plane_offset_bytes<T, kSegment>(n_blocks) +
                      block * T::kSegmentBytes[kSegment],
                  raw.data() + block * T::kBlockBytes + quant::segment_offset_bytes<T>(kSegment),
                  static_cast<size_t>(T::kSegmentBytes[kSegment]));
    }
    add_planes<T, kSegment + 1>(raw, n_blocks, planes);
  }
}

template <class T>
void check_block_type(const QuantType& type) {
  int bytes = 0;
  for (int segment = 0; segment < T::kSegments; ++segment) {
    bytes += T::kSegmentBytes[segment];
  }
  ASSERT_EQ(bytes, T::kBlockBytes);
  const std::vector<uint8_t> raw = blocks_of(type);
  const int64_t n_blocks = static_cast<int64_t>(raw.size()) / T::kBlockBytes;
  std::vector<uint8_t> planes(
      static_cast<size_t>(quant::plane_offset_bytes<T, T::kSegments>(n_blocks)));
  add_planes<T>(raw, n_blocks, planes);
  std::vector<float> expected(static_cast<size_t>(n_blocks * T::kBlockElems));
  type.dequantize(reinterpret_cast<const std::byte*>(raw.data()), n_blocks, expected.data());
  for (int64_t block = 0; block < n_blocks; ++block) {
    const quant::RawBlock<T> in_file{raw.data() + block * T::kBlockBytes};
    const quant::PlanesBlock<T> in_planes{planes.data(), n_blocks, block};
    for (int octet = 0; octet < T::kBlockElems / 8; ++octet) {
      float from_file[8], from_planes[8];
      quant::decode8<T>(in_file, octet, from_file);
      quant::decode8<T>(in_planes, octet, from_planes);
      for (int elem = 0; elem < 8; ++elem) {
        const float value =
            expected[static_cast<size_t>(block * T::kBlockElems + 8 * octet + elem)];
        const bool both_nan = value != value && from_file[elem] != from_file[elem];
        ASSERT_TRUE(both_nan || std::memcmp(&from_file[elem], &value, 4) == 0)
            << type.name << " block " << block << " weight " << 8 * octet + elem << ": "
            << from_file[elem] << ", expected " << value;
        ASSERT_EQ(std::memcmp(&from_planes[elem], &from_file[elem], 4), 0) << type.name;
      }
    }
  }
}

#define APR_QUANT_TYPE(type_id, type_name, Traits, file)         \
  TEST(QuantDevice, Traits##EqualsTheReference) {                \
    const QuantType& type = *find_quant_type(uint32_t{type_id}); \
    if constexpr (quant::Traits::kBlockElems > 1) {              \
      check_block_type<quant::Traits>(type);                     \
    } else {                                                     \
      EXPECT_EQ(quant::Traits::kRawAlign, type.block_bytes);     \
    }                                                            \
  }
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE

}  // namespace
}  // namespace apr
