// GGUF v2 / v3 files: header, metadata and tensor table, validated before anything is used.
// Format: ggml's docs/gguf.md. All parts of a split file are opened as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace apr {

// Element types of metadata values, by their id in the file.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Storage layout of a tensor type: a row is a whole number of blocks.
struct TypeLayout {
  int64_t block_elems;
  int64_t block_bytes;
};

// Answers the layout of a ggml type id, or nothing for a type that is not supported; given to the
// reader by the caller because types are a later layer (apr::quant_type_layout).
using TypeLayoutFn = std::optional<TypeLayout> (*)(uint32_t type_id);

// Describes a type id for a message: "138 (ik_llama.cpp IQ3_K)", "999".
using TypeLabelFn = std::string (*)(uint32_t type_id);

// One metadata value: a view into the file, validated when the file was opened. Strings and arrays
// are not copied; an array of strings is walked on demand.
class GgufValue {
 public:
  GgufValueType type() const { return type_; }                  // kArray for arrays
  GgufValueType element_type() const { return element_type_; }  // of an array; else type()
  uint64_t count() const { return count_; }                     // elements of an array; else 1
  std::string type_name() const;                                // "u32", "array of string"

  // The value's bytes as they lie in the file: of an array all elements (a string element as u64
  // length and bytes), of a string its text.
  std::span<const std::byte> payload() const { return payload_; }

  // The value, or nothing where the type does not convert without loss (any integer type to
  // either; f32 / f64 to double; integers to double when exact).
  std::optional<uint64_t> as_u64() const;
  std::optional<int64_t> as_i64() const;
  std::optional<double> as_f64() const;
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;

  // The elements of an array; nothing where the element type does not fit. The views of
  // as_string_array live as long as the file.
  std::optional<std::vector<std::string_view>> as_string_array() const;
  std::optional<std::vector<int64_t>> as_i64_array() const;  // integer and bool elements
  std::optional<std::vector<double>> as_f64_array() const;

 private:
  friend class GgufParser;
  GgufValueType type_{}, element_type_{};
  uint64_t count_ = 1;
  std::span<const std::byte> payload_;
};

struct GgufKeyValue {
  std::string_view key;
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;
  std::vector<int64_t> shape;  // slowest axis first; GGUF's ne reversed
  uint32_t type_id;            // ggml type id
  std::span<const std::byte>
      data;                    // prod(shape) elements, whole blocks per row; in the mapped file
  int part_idx;                // which file of a split, from 0
  uint64_t file_offset_bytes;  // of data in that file
};

// An open GGUF model: owns the mappings; every view it hands out lives as long as it does.
class GgufFile {
 public:
  // Opens `path` and, where it is a part of a split file, all its parts (any part may be named).
  // Throws kFileNotFound, kIo, kInvalidFormat, kModelLoad (unknown tensor type).
  static GgufFile open(const std::filesystem::path& path, TypeLayoutFn layout, TypeLabelFn label);

  // Parses one whole GGUF image in memory; `image` must outlive the result (the built-in demo,
  // tests, fuzzing). `name` stands for the path in messages. Throws as open.
  static GgufFile from_memory(std::span<const std::byte> image, const std::string& name,
                              TypeLayoutFn layout, TypeLabelFn label);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& name() const;  // path of the first part
  std::vector<std::string> part_names() const;
  uint64_t total_bytes() const;  // of all parts
  uint32_t version() const;
  std::span<const GgufKeyValue> metadata() const;  // of the first part, file order
  std::span<const GgufTensor> tensors() const;     // of all parts, file order

  const GgufValue* find(std::string_view key) const;  // null where absent
  const GgufTensor* find_tensor(std::string_view name) const;

  // Typed access: the value, nothing where the key is absent, kInvalidFormat naming key, expected
  // and found type where the type is wrong.
  std::optional<uint64_t> get_u64(std::string_view key) const;
  std::optional<double> get_f64(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  std::optional<std::vector<std::string_view>> get_string_array(std::string_view key) const;
  std::optional<std::vector<int64_t>> get_i64_array(std::string_view key) const;
  std::optional<std::vector<double>> get_f64_array(std::string_view key) const;

 private:
  friend class GgufParser;
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace apr
