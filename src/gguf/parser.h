// Parses and judges one GGUF image: header, metadata, tensor table, extents of the tensor data.
// Layout (little endian, ggml's docs/gguf.md):
//   "GGUF" | u32 version | u64 n_tensors | u64 n_kv
//   n_kv      x { string key | u32 type | value }   array value: u32 element type | u64 count |
//   elements n_tensors x { string name | u32 n_dims | u64 ne[n_dims], fastest axis first | u32 type
//   | u64 offset } padding to general.alignment | tensor data; offsets count from here
// A string is u64 length + bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apr/gguf.h"
#include "gguf/cursor.h"

namespace apr {

// Bounds far above real files (a split model of 1,000 parts, 60,000 tensors of unmerged experts),
// so that a file full of tiny elements cannot cost more than a few tens of MB.
inline constexpr uint64_t kMaxTensors = 65536;
inline constexpr uint64_t kMaxKeyValues = 65536;
inline constexpr uint64_t kMaxArrayElems = 1ull << 22;
inline constexpr uint64_t kMaxKeyBytes = 65535;      // ggml's docs/gguf.md
inline constexpr uint64_t kMaxTensorNameBytes = 64;  // ggml's docs/gguf.md
inline constexpr uint32_t kMaxDims = 4;
inline constexpr uint32_t kDefaultAlignmentBytes = 32;

// One parsed image; views into it.
struct GgufImage {
  uint32_t version = 0;
  std::vector<GgufKeyValue> metadata;  // file order
  std::vector<uint32_t> by_key;        // indices into metadata, ascending by key
  std::vector<GgufTensor> tensors;     // file order
};

class GgufParser {
 public:
  // `file_name` is for messages; both references outlive the parser.
  GgufParser(std::span<const std::byte> image, const std::string& file_name, TypeLayoutFn layout,
             TypeLabelFn label)
      : image_(image),
        file_name_(file_name),
        layout_(layout),
        label_(label),
        cursor_(image, file_name) {}

  // Parses the image; part_idx of its tensors is left 0. Throws kInvalidFormat naming file, what,
  // byte, expected and found; kModelLoad for a tensor of an unsupported type.
  GgufImage parse();

 private:
  // A tensor table entry before its data has been located.
  struct TensorEntry {
    uint64_t entry_byte = 0;    // of the entry in the file
    uint64_t offset_bytes = 0;  // of the data, from the start of the data section
    uint64_t size_bytes = 0;
  };

  void parse_header();
  void parse_metadata();
  GgufValue parse_value();
  GgufValueType parse_value_type();
  void parse_elements(GgufValue& value);
  void parse_alignment();
  void parse_tensor_table();
  void parse_shape(GgufTensor& tensor);
  void locate_tensors();
  uint64_t tensor_size_bytes(const GgufTensor& tensor, uint64_t entry_byte);
  void check_overlaps() const;
  std::string_view parse_name(const char* what, uint64_t max_bytes);

  std::span<const std::byte> image_;
  const std::string& file_name_;
  TypeLayoutFn layout_;
  TypeLabelFn label_;
  Cursor cursor_;
  uint64_t n_tensors_ = 0;
  uint64_t n_kv_ = 0;
  uint64_t alignment_bytes_ = kDefaultAlignmentBytes;
  GgufImage result_;
  std::vector<TensorEntry> entries_;  // [n_tensors], as result_.tensors
};

}  // namespace apr
