#include "gguf/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "apr/error.h"
#include "base/format.h"
#include "gguf/name_index.h"
#include "gguf/text.h"
#include "gguf/value_types.h"

namespace apr {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kHeaderBytes = 24;
constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;        // a one-byte key with a u8
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // a one-byte name with one axis
constexpr std::string_view kAlignmentKey = "general.alignment";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

GgufImage GgufParser::parse() {
  parse_header();
  parse_metadata();
  parse_alignment();
  parse_tensor_table();
  locate_tensors();
  check_overlaps();
  return std::move(result_);
}

void GgufParser::parse_header() {
  cursor_.set_subject({.kind = "the header"});
  const size_t n_seen = std::min(image_.size(), kMagic.size());
  const std::string_view magic = as_text(image_.first(n_seen));
  if (magic != kMagic.substr(0, n_seen)) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{}: not a GGUF file: expected \"GGUF\" at byte 0, found \"{}\"",
                            file_name_, printable(magic)));
  }
  if (image_.size() < kHeaderBytes) {
    cursor_.fail_truncated(kHeaderBytes);
  }
  cursor_.take(kMagic.size());
  const uint32_t version = cursor_.read<uint32_t>();
  if (version != 0 && (version & 0xFFFF) == 0) {
    cursor_.fail(4,
                 fmt::format("big-endian GGUF (version stored as {:#010x}), expected little-endian;"
                             " convert the file to little-endian first",
                             version));
  }
  if (version != 2 && version != 3) {
    cursor_.fail(4, fmt::format("expected GGUF version 2 or 3, found {}", version));
  }
  result_.version = version;
  n_tensors_ = cursor_.read<uint64_t>();
  n_kv_ = cursor_.read<uint64_t>();
  if (n_tensors_ > kMaxTensors) {
    cursor_.fail(8, fmt::format("expected at most {} tensors, found a count of {}", kMaxTensors,
                                n_tensors_));
  }
  if (n_kv_ > kMaxKeyValues) {
    cursor_.fail(16, fmt::format("expected at most {} metadata keys, found a count of {}",
                                 kMaxKeyValues, n_kv_));
  }
}

std::string_view GgufParser::parse_name(const char* what, uint64_t max_bytes) {
  const uint64_t start_byte = cursor_.offset_bytes();
  const uint64_t n_bytes = cursor_.read<uint64_t>();
  if (n_bytes == 0 || n_bytes > max_bytes) {
    cursor_.fail(start_byte,
                 fmt::format("expected a {} of 1 to {} bytes, found {}", what, max_bytes, n_bytes));
  }
  const std::string_view name = as_text(cursor_.take(n_bytes));
  if (!is_utf8(name)) {
    cursor_.fail(start_byte + sizeof(uint64_t),
                 fmt::format("expected a {} in UTF-8, found \"{}\"", what, printable(name)));
  }
  return name;
}

void GgufParser::parse_metadata() {
  result_.metadata.reserve(std::min(n_kv_, cursor_.remaining_bytes() / kMinKeyValueBytes));
  std::vector<uint64_t> key_bytes;
  for (uint64_t kv_idx = 0; kv_idx < n_kv_; ++kv_idx) {
    cursor_.set_subject({.kind = "metadata key", .idx = kv_idx, .count = n_kv_});
    key_bytes.push_back(cursor_.offset_bytes());
    const std::string_view key = parse_name("key", kMaxKeyBytes);
    cursor_.set_subject({.kind = "metadata key", .name = key});
    result_.metadata.push_back({key, parse_value()});
  }
  result_.by_key = index_by_name(result_.metadata, &GgufKeyValue::key);
  if (const auto pair = find_duplicate(result_.metadata, result_.by_key, &GgufKeyValue::key)) {
    cursor_.set_subject({.kind = "metadata key", .name = result_.metadata[pair->second].key});
    cursor_.fail(
        key_bytes[pair->second],
        fmt::format("expected each key once, found it before at byte {}", key_bytes[pair->first]));
  }
}

GgufValueType GgufParser::parse_value_type() {
  const uint64_t at_byte = cursor_.offset_bytes();
  const uint32_t type_id = cursor_.read<uint32_t>();
  if (type_id >= kNumGgufValueTypes) {
    cursor_.fail(at_byte, fmt::format("expected a value type of 0 to {}, found {}",
                                      kNumGgufValueTypes - 1, type_id));
  }
  return static_cast<GgufValueType>(type_id);
}

GgufValue GgufParser::parse_value() {
  GgufValue value;
  value.type_ = parse_value_type();
  value.element_type_ = value.type_;
  if (value.type_ != GgufValueType::kArray) {
    if (value.type_ == GgufValueType::kString) {
      value.payload_ = cursor_.take(cursor_.read<uint64_t>());
    } else {
      parse_elements(value);
    }
    return value;
  }
  const uint64_t element_type_byte = cursor_.offset_bytes();
  value.element_type_ = parse_value_type();
  if (value.element_type_ == GgufValueType::kArray) {
    cursor_.fail(element_type_byte, "expected an array of single values, found an array of arrays");
  }
  const uint64_t count_byte = cursor_.offset_bytes();
  value.count_ = cursor_.read<uint64_t>();
  if (value.count_ > kMaxArrayElems) {
    cursor_.fail(count_byte, fmt::format("expected an array of at most {} elements, found {}",
                                         kMaxArrayElems, value.count_));
  }
  parse_elements(value);
  return value;
}

void GgufParser::parse_elements(GgufValue& value) {
  const uint64_t start_byte = cursor_.offset_bytes();
  if (value.element_type_ == GgufValueType::kString) {
    for (uint64_t idx = 0; idx < value.count_; ++idx) {
      cursor_.take(cursor_.read<uint64_t>());
    }
    value.payload_ = image_.subspan(start_byte, cursor_.offset_bytes() - start_byte);
    return;
  }
  // No overflow: at most 2^22 elements of 8 bytes.
  value.payload_ = cursor_.take(value.count_ * gguf_value_bytes(value.element_type_));
  if (value.element_type_ == GgufValueType::kBool) {
    const auto bad = std::find_if(value.payload_.begin(), value.payload_.end(),
                                  [](std::byte byte) { return byte > std::byte{1}; });
    if (bad != value.payload_.end()) {
      cursor_.fail(start_byte + static_cast<uint64_t>(bad - value.payload_.begin()),
                   fmt::format("expected a bool of 0 or 1, found {}", static_cast<int>(*bad)));
    }
  }
}

void GgufParser::parse_alignment() {
  const GgufKeyValue* entry =
      find_by_name(result_.metadata, result_.by_key, &GgufKeyValue::key, kAlignmentKey);
  if (entry == nullptr) {
    return;
  }
  cursor_.set_subject({.kind = "metadata key", .name = kAlignmentKey});
  const uint64_t at_byte = static_cast<uint64_t>(entry->value.payload_.data() - image_.data());
  if (entry->value.type() != GgufValueType::kU32) {
    cursor_.fail(at_byte, fmt::format("expected u32, found {}", entry->value.type_name()));
  }
  alignment_bytes_ = *entry->value.as_u64();
  if (!std::has_single_bit(alignment_bytes_) || alignment_bytes_ % 8 != 0) {
    cursor_.fail(at_byte, fmt::format("expected a power of two that is a multiple of 8, found {}",
                                      alignment_bytes_));
  }
}

void GgufParser::parse_tensor_table() {
  const uint64_t n_fitting = std::min(n_tensors_, cursor_.remaining_bytes() / kMinTensorBytes);
  result_.tensors.reserve(n_fitting);
  entries_.reserve(n_fitting);
  for (uint64_t tensor_idx = 0; tensor_idx < n_tensors_; ++tensor_idx) {
    TensorEntry entry;
    GgufTensor tensor{};
    entry.entry_byte = cursor_.offset_bytes();
    cursor_.set_subject({.kind = "tensor", .idx = tensor_idx, .count = n_tensors_});
    tensor.name = parse_name("tensor name", kMaxTensorNameBytes);
    cursor_.set_subject({.kind = "tensor", .name = tensor.name});
    parse_shape(tensor);
    tensor.type_id = cursor_.read<uint32_t>();
    const uint64_t offset_byte = cursor_.offset_bytes();
    entry.offset_bytes = cursor_.read<uint64_t>();
    if (entry.offset_bytes % alignment_bytes_ != 0) {
      cursor_.fail(offset_byte,
                   fmt::format("expected a data offset that is a multiple of {}, found {}",
                               alignment_bytes_, entry.offset_bytes));
    }
    result_.tensors.push_back(std::move(tensor));
    entries_.push_back(entry);
  }
  const auto by_name = index_by_name(result_.tensors, &GgufTensor::name);
  if (const auto pair = find_duplicate(result_.tensors, by_name, &GgufTensor::name)) {
    cursor_.set_subject({.kind = "tensor", .name = result_.tensors[pair->second].name});
    cursor_.fail(entries_[pair->second].entry_byte,
                 fmt::format("expected each tensor name once, found it before at byte {}",
                             entries_[pair->first].entry_byte));
  }
}

void GgufParser::parse_shape(GgufTensor& tensor) {
  const uint64_t n_dims_byte = cursor_.offset_bytes();
  const uint32_t n_dims = cursor_.read<uint32_t>();
  if (n_dims < 1 || n_dims > kMaxDims) {
    cursor_.fail(n_dims_byte,
                 fmt::format("expected 1 to {} dimensions, found {}", kMaxDims, n_dims));
  }
  tensor.shape.resize(n_dims);
  int64_t n_elems = 1;
  for (uint32_t axis = n_dims; axis-- > 0;) {  // the file has the fastest axis first
    const uint64_t axis_byte = cursor_.offset_bytes();
    const uint64_t axis_elems = cursor_.read<uint64_t>();
    if (axis_elems < 1 || axis_elems > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      cursor_.fail(axis_byte,
                   fmt::format("expected an axis of 1 to 2^63-1 elements, found {}", axis_elems));
    }
    tensor.shape[axis] = static_cast<int64_t>(axis_elems);
    if (__builtin_mul_overflow(n_elems, tensor.shape[axis], &n_elems)) {
      cursor_.fail(axis_byte,
                   fmt::format("expected at most 2^63-1 elements, found more after an axis of {}",
                               axis_elems));
    }
  }
}

uint64_t GgufParser::tensor_size_bytes(const GgufTensor& tensor, uint64_t entry_byte) {
  const std::optional<TypeLayout> layout = layout_(tensor.type_id);
  if (!layout) {
    throw Error(ErrorCode::kModelLoad,
                fmt::format("{}: tensor {} uses type {}, not supported", file_name_,
                            printable(tensor.name), label_(tensor.type_id)));
  }
  const int64_t row_elems = tensor.shape.back();
  if (row_elems % layout->block_elems != 0) {
    cursor_.fail(
        entry_byte,
        fmt::format("expected rows of whole blocks of {} elements for type {}, "
                    "found shape {}",
                    layout->block_elems, label_(tensor.type_id), format_shape(tensor.shape)));
  }
  uint64_t size_bytes = static_cast<uint64_t>(row_elems / layout->block_elems);
  bool overflows = __builtin_mul_overflow(size_bytes, layout->block_bytes, &size_bytes);
  for (size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis) {
    overflows |= __builtin_mul_overflow(size_bytes, tensor.shape[axis], &size_bytes);
  }
  if (overflows) {
    cursor_.fail(entry_byte, fmt::format("expected less than 2^64 bytes, found shape {} of type {}",
                                         format_shape(tensor.shape), label_(tensor.type_id)));
  }
  return size_bytes;
}

void GgufParser::locate_tensors() {
  // No overflow: the head ends within kMaxHeadBytes and an alignment is below 2^32.
  const uint64_t data_byte =
      (cursor_.offset_bytes() + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_;
  for (size_t tensor_idx = 0; tensor_idx < entries_.size(); ++tensor_idx) {
    GgufTensor& tensor = result_.tensors[tensor_idx];
    TensorEntry& entry = entries_[tensor_idx];
    cursor_.set_subject({.kind = "tensor", .name = tensor.name});
    entry.size_bytes = tensor_size_bytes(tensor, entry.entry_byte);
    uint64_t end_byte = 0;
    if (__builtin_add_overflow(data_byte, entry.offset_bytes, &tensor.file_offset_bytes) ||
        __builtin_add_overflow(tensor.file_offset_bytes, entry.size_bytes, &end_byte)) {
      cursor_.fail(entry.entry_byte,
                   fmt::format("expected data that ends below byte 2^64, found offset {} "
                               "and {} bytes",
                               entry.offset_bytes, entry.size_bytes));
    }
    if (end_byte > image_.size()) {
      cursor_.fail_truncated(end_byte);
    }
    tensor.data = image_.subspan(tensor.file_offset_bytes, entry.size_bytes);
  }
}

void GgufParser::check_overlaps() const {
  std::vector<uint32_t> by_offset(result_.tensors.size());
  std::iota(by_offset.begin(), by_offset.end(), 0u);
  std::sort(by_offset.begin(), by_offset.end(), [&](uint32_t left, uint32_t right) {
    return result_.tensors[left].file_offset_bytes < result_.tensors[right].file_offset_bytes;
  });
  for (size_t idx = 1; idx < by_offset.size(); ++idx) {
    const GgufTensor& before = result_.tensors[by_offset[idx - 1]];
    const GgufTensor& after = result_.tensors[by_offset[idx]];
    const uint64_t before_end_byte = before.file_offset_bytes + before.data.size();
    if (before_end_byte > after.file_offset_bytes) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("{}: tensors {} and {} overlap: bytes {} to {} and {} to {}",
                              file_name_, printable(before.name), printable(after.name),
                              before.file_offset_bytes, before_end_byte, after.file_offset_bytes,
                              after.file_offset_bytes + after.data.size()));
    }
  }
}

}  // namespace apr
