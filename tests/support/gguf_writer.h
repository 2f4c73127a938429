// Writes GGUF files for tests: from nothing, or as a copy of an existing file with changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "apr/gguf.h"

namespace apr::test {

// Little-endian bytes, appended; the raw material of broken files.
class ByteBuilder {
 public:
  template <typename T>
  ByteBuilder& put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  ByteBuilder& put_bytes(std::span<const std::byte> bytes);
  ByteBuilder& put_text(std::string_view text);    // the bytes alone
  ByteBuilder& put_string(std::string_view text);  // u64 length, bytes
  ByteBuilder& pad_to(uint64_t alignment_bytes);   // with zeros

  size_t size() const { return bytes_.size(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct WriterValue {
  std::string key;
  GgufValueType type;
  GgufValueType element_type;      // of an array
  uint64_t count;                  // of an array
  std::vector<std::byte> payload;  // as in the file, without type, element type and count
};

struct WriterTensor {
  std::string name;
  std::vector<int64_t> shape;  // slowest axis first
  uint32_t type_id;
  std::vector<std::byte> data;
};

// The GgufValueType of a C++ type.
template <typename T>
constexpr GgufValueType value_type_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return GgufValueType::kBool;
  } else if constexpr (std::is_same_v<T, float>) {
    return GgufValueType::kF32;
  } else if constexpr (std::is_same_v<T, double>) {
    return GgufValueType::kF64;
  } else {
    static_assert(std::is_integral_v<T>);
    constexpr bool kSigned = std::is_signed_v<T>;
    return sizeof(T) == 1   ? (kSigned ? GgufValueType::kI8 : GgufValueType::kU8)
           : sizeof(T) == 2 ? (kSigned ? GgufValueType::kI16 : GgufValueType::kU16)
           : sizeof(T) == 4 ? (kSigned ? GgufValueType::kI32 : GgufValueType::kU32)
                            : (kSigned ? GgufValueType::kI64 : GgufValueType::kU64);
  }
}

class GgufWriter {
 public:
  // A copy of everything in `file`, the keys of a split left out.
  static GgufWriter copy_of(const GgufFile& file);

  void set_version(uint32_t version) { version_ = version; }
  void set_alignment(uint32_t alignment_bytes);  // of tensor data; writes the key as well

  // Metadata; a key that is there keeps its place and gets the new value.
  template <typename T>
  void set(std::string_view key, T value) {
    ByteBuilder payload;
    payload.put(value);
    set_value({std::string(key), value_type_of<T>(), value_type_of<T>(), 1, payload.bytes()});
  }
  template <typename T>
  void set_array(std::string_view key, const std::vector<T>& values) {
    ByteBuilder payload;
    for (const T value : values) {
      payload.put(value);
    }
    set_value({std::string(key), GgufValueType::kArray, value_type_of<T>(), values.size(),
               payload.bytes()});
  }
  void set_string(std::string_view key, std::string_view text);
  void set_string_array(std::string_view key, const std::vector<std::string>& texts);
  void set_value(WriterValue value);
  void remove(std::string_view key);                     // the key must be there
  const WriterValue& value(std::string_view key) const;  // must be there
  bool has_value(std::string_view key) const;

  // Tensors, in file order; name collisions and wrong sizes are not judged: they are what some
  // tests want.
  void add_tensor(WriterTensor tensor) { tensors_.push_back(std::move(tensor)); }
  std::vector<WriterTensor>& tensors() { return tensors_; }
  const std::vector<WriterTensor>& tensors() const { return tensors_; }
  WriterTensor& tensor(std::string_view name);  // must be there
  bool has_tensor(std::string_view name) const;
  void remove_tensor(std::string_view name);  // must be there
  void rename_tensor(std::string_view name, std::string_view new_name);

  // The whole file.
  std::vector<std::byte> bytes() const;
  void write(const std::filesystem::path& path) const;

  // The same with a hole for the data of every tensor, which reads as zeros and takes no disk:
  // tensors need a shape and a type alone.
  void write_sparse(const std::filesystem::path& path) const;

  // The parts of a split as llama.cpp's gguf-split makes them: all metadata in the first, tensors
  // spread evenly in file order, from the first part on or (vocabulary_first) from the second.
  std::vector<GgufWriter> split(uint16_t n_parts, bool vocabulary_first = false) const;

  // Writes the parts as `<folder>/<prefix>-00001-of-0000N.gguf`; returns the paths.
  std::vector<std::filesystem::path> write_split(const std::filesystem::path& folder,
                                                 const std::string& prefix, uint16_t n_parts,
                                                 bool vocabulary_first = false) const;

 private:
  ByteBuilder head(std::span<const uint64_t> offset_bytes) const;  // of each tensor's data

  uint32_t version_ = 3;
  uint32_t alignment_bytes_ = 32;
  std::vector<WriterValue> values_;
  std::vector<WriterTensor> tensors_;
};

// Writes `bytes` as a file. Throws std::runtime_error where it cannot.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Reads a whole file. Throws std::runtime_error where it cannot.
std::vector<std::byte> read_file(const std::filesystem::path& path);

// An empty folder of its own for a test, deleted with all in it when the object goes.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace apr::test
