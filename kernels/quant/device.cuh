// How device code reads a quantised weight: the contract of the device part of every type file.
// It is plain integer and f32 code, so that it also runs on the host, where tests compare it with
// the scalar reference without a GPU.
//
// A block is a few segments (byte ranges in file order). Two layouts hold the same bytes:
//   raw     blocks one after the other, as in the file
//   planes  units of 16 rows by 256 columns, those of the first 16 rows first, rows and columns
//           past the end zero. In a unit one plane for each segment: its bytes of row 0, of row 1,
//           ..., or, where a row has whole 16-byte pieces, the first piece of each row, the second
//           of each, ...: what the lanes of a tensor-core product read together lies together
//
// A block type T gives, beside kBlockElems and kBlockBytes:
//   kSegments, kSegmentBytes[kSegments]  in file order, sum kBlockBytes
//   kRawAlign     alignment of a block in the raw layout, bytes
//   kGroupElems   16 or 32: weights with one scale
//   quants4(block, quartet)  weights [4 quartet, + 4) as four bytes u: q = u - kQuantBias
//   affine(block, group)     {scale, offset} of a group of kGroupElems weights
// A weight is fl(fl(scale * q) + offset), the addition only with kHasOffset: bit for bit the value
// of decode_reference. Plain types (F32, F16, BF16; kBlockElems 1) give decode8(values, out[8]).
// Types that look weights up give grid(), their table. `block` is a RawBlock<T>, a PlanesBlock<T>
// or a GridBlock<T>.
#pragma once

#include "f16_value.cuh"
#include "platform.cuh"
#include "quant/fault_points.cuh"

namespace apr::quant {

struct Affine {
  float scale, offset;
};

APR_DEVICE constexpr int64_t align16(int64_t n_bytes) {
  return (n_bytes + 15) / 16 * 16;
}

// Where a segment starts in a block of the raw layout.
template <class T>
constexpr int segment_offset_bytes(int segment) {
  int offset = 0;
  for (int idx = 0; idx < segment; ++idx) {
    offset += T::kSegmentBytes[idx];
  }
  return offset;
}

// Bytes that every multiple of `stride` shares as alignment, at most 16.
APR_DEVICE constexpr int alignment_of(int stride_bytes) {
  return stride_bytes % 16 == 0  ? 16
         : stride_bytes % 8 == 0 ? 8
         : stride_bytes % 4 == 0 ? 4
         : stride_bytes % 2 == 0 ? 2
                                 : 1;
}

constexpr int kUnitRows = 16;
constexpr int kUnitCols = 256;

// Units that hold the columns of a row.
APR_DEVICE constexpr int units_of(int64_t n_cols) {
  return static_cast<int>((n_cols + kUnitCols - 1) / kUnitCols);
}

template <class T>
constexpr int unit_bytes() {
  return kUnitRows * (kUnitCols / T::kBlockElems) * T::kBlockBytes;
}

// Of a matrix in the planes layout.
template <class T>
constexpr int64_t planes_bytes(int64_t n_rows, int64_t n_cols) {
  return (n_rows + kUnitRows - 1) / kUnitRows * units_of(n_cols) * unit_bytes<T>();
}

template <class T>
struct RawBlock {
  const uint8_t* base;  // of the block

  // Byte `offset` of a segment. Loads from there stay within 16 bytes from the segment's start or
  // a multiple of 16 in it.
  template <int kSegment>
  APR_DEVICE const uint8_t* at(int offset) const {
    constexpr int kOffset = segment_offset_bytes<T>(kSegment);
    return base + kOffset + offset;
  }
  // What loads from a segment's start may assume.
  template <int kSegment>
  static constexpr int align() {
    const int of_offset = alignment_of(segment_offset_bytes<T>(kSegment));
    return of_offset < T::kRawAlign ? of_offset : T::kRawAlign;
  }
};

template <class T>
struct PlanesBlock {
  static constexpr int kBlocks = kUnitCols / T::kBlockElems;  // of a unit's row

  const uint8_t* unit;
  int row, block;  // in the unit

  template <int kSegment>
  APR_DEVICE const uint8_t* at(int offset) const {
    constexpr int kPlane = kUnitRows * kBlocks * segment_offset_bytes<T>(kSegment);
    constexpr int kRowBytes = T::kSegmentBytes[kSegment] * kBlocks;
    const uint32_t of_row = static_cast<uint32_t>(block * T::kSegmentBytes[kSegment] + offset);
    if constexpr (kRowBytes % 16 == 0) {
      return unit + kPlane + of_row / 16 * (16 * kUnitRows) + (row * 16 + of_row % 16);
    } else {
      return unit + kPlane + (row * kRowBytes + of_row);
    }
  }
  template <int kSegment>
  static constexpr int align() {
    return alignment_of(T::kSegmentBytes[kSegment]);
  }
};

// Words of a type's grid; 0 of a type without one.
template <class T>
constexpr int grid_words() {
  if constexpr (requires { T::grid(); }) {
    return static_cast<int>(sizeof(T::grid()) / sizeof(uint32_t));
  } else {
    return 0;
  }
}

// A block in planes with a copy of its type's grid. Each lane of a product looks up an entry of its
// own: in the L1 cache that takes cycles for every line met, in shared memory for every bank met
// twice.
template <class T>
struct GridBlock : PlanesBlock<T> {
  const uint32_t* grid;  // [grid_words<T>()]
};

template <class T>
APR_DEVICE auto unit_block(const uint8_t* unit, int row, int block,
                           [[maybe_unused]] const uint32_t* grid) {
  if constexpr (grid_words<T>() > 0) {
    return GridBlock<T>{{unit, row, block}, grid};
  } else {
    return PlanesBlock<T>{unit, row, block};
  }
}

// Block `block_idx` of row `row` of a matrix of n_cols columns in the planes layout.
template <class T>
APR_DEVICE PlanesBlock<T> planes_block(const uint8_t* data, int64_t n_cols, int64_t row,
                                       int block_idx) {
  constexpr int kBlocks = PlanesBlock<T>::kBlocks;
  const int64_t unit = row / kUnitRows * row_stride(units_of(n_cols), 1) + block_idx / kBlocks;
  return {data + unit * unit_bytes<T>(), static_cast<int>(row % kUnitRows), block_idx % kBlocks};
}

// Copies a block of the raw layout to its place in the planes layout.
template <class T, int kSegment = 0>
APR_DEVICE void copy_to_planes(const uint8_t* raw, const PlanesBlock<T>& to) {
  if constexpr (kSegment < T::kSegments) {
    constexpr int kOffset = segment_offset_bytes<T>(kSegment);
    constexpr int kBytes = T::kSegmentBytes[kSegment];
    for (int byte = 0; byte < kBytes; ++byte) {
      *const_cast<uint8_t*>(to.template at<kSegment>(byte)) = raw[kOffset + byte];
    }
    copy_to_planes<T, kSegment + 1>(raw, to);
  }
}

// A little-endian u32 at `bytes`, which are aligned to kAlign.
template <int kAlign>
APR_DEVICE uint32_t load_u32(const uint8_t* bytes) {
#ifdef APR_DEVICE_CODE
  if constexpr (kAlign >= 4) {
    return *reinterpret_cast<const uint32_t*>(bytes);
  } else if constexpr (kAlign == 2) {
    const uint16_t* words = reinterpret_cast<const uint16_t*>(bytes);
    return words[0] | static_cast<uint32_t>(words[1]) << 16;
  }
#endif
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8 | static_cast<uint32_t>(bytes[2]) << 16 |
         static_cast<uint32_t>(bytes[3]) << 24;
}

template <int kAlign>
APR_DEVICE uint32_t load_u16(const uint8_t* bytes) {
#ifdef APR_DEVICE_CODE
  if constexpr (kAlign >= 2) {
    return *reinterpret_cast<const uint16_t*>(bytes);
  }
#endif
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8;
}

// An f16 that scales a block, aligned to kAlign.
template <int kAlign>
APR_DEVICE float load_d(const uint8_t* bytes) {
  return f16_value(d_bits(load_u16<kAlign>(bytes)));
}

// Byte j of the result is the byte of (high : low) that nibble j of `selector` (0..7) names.
APR_DEVICE uint32_t byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef APR_DEVICE_CODE
  return __byte_perm(low, high, selector);
#else
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  uint32_t result = 0;
  for (int byte = 0; byte < 4; ++byte) {
    result |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * byte) & 7)) & 255)
              << (8 * byte);
  }
  return result;
#endif
}

// Bits 0..3 of `bits` as bit 0 of bytes 0..3.
APR_DEVICE uint32_t spread4(uint32_t bits) {
  return (bits & 15) * 0x00204081u & 0x01010101u;
}

// Weights [8 octet, + 8) of a block, as decode_reference gives them.
template <class T, class Block>
APR_DEVICE void decode8(const Block& block, int octet, float (&out)[8]) {
  const Affine affine = T::affine(block, scale_selector(8 * octet / T::kGroupElems));
  for (int half = 0; half < 2; ++half) {
    const uint32_t quants = T::quants4(block, 2 * octet + half);
    for (int elem = 0; elem < 4; ++elem) {
      const int q = static_cast<int>(quants >> (8 * elem) & 255) - T::kQuantBias;
      const float product = mul_rn(affine.scale, static_cast<float>(q));
      out[4 * half + elem] = T::kHasOffset ? add_rn(product, affine.offset) : product;
    }
  }
}

}  // namespace apr::quant
