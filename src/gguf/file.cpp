// GgufFile: opening one file, all parts of a split file or an image in memory; lookup and typed
// access.
#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "apr/error.h"
#include "apr/gguf.h"
#include "base/file_map.h"
#include "gguf/name_index.h"
#include "gguf/parser.h"
#include "gguf/split.h"
#include "gguf/text.h"

namespace apr {

struct GgufFile::Impl {
  std::vector<FileMap> maps;  // empty for an image in memory
  std::vector<std::string> part_names;
  uint64_t total_bytes = 0;
  GgufImage first;                  // of the first part, its tensors moved to `tensors`
  std::vector<GgufTensor> tensors;  // of all parts
  std::vector<uint32_t> by_name;    // indices into tensors, ascending by name
};

namespace {

// Checks what only all parts together show: the number of tensors and that names are unique.
void check_tensors(const std::vector<GgufTensor>& tensors, std::span<const uint32_t> by_name,
                   const std::vector<std::string>& part_names,
                   std::optional<uint64_t> expected_tensors) {
  if (const auto pair = find_duplicate(tensors, by_name, &GgufTensor::name)) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("tensor {} is in {} and again in {}, expected each tensor name once",
                            printable(tensors[pair->first].name),
                            part_names[static_cast<size_t>(tensors[pair->first].part_idx)],
                            part_names[static_cast<size_t>(tensors[pair->second].part_idx)]));
  }
  if (expected_tensors && *expected_tensors != tensors.size()) {
    throw Error(
        ErrorCode::kInvalidFormat,
        fmt::format("{}: metadata key split.tensors.count: expected {} as in the tensor tables "
                    "of the {} parts, found {}",
                    part_names.front(), tensors.size(), part_names.size(), *expected_tensors));
  }
}

}  // namespace

GgufFile GgufFile::open(const std::filesystem::path& path, TypeLayoutFn layout, TypeLabelFn label) {
  const std::optional<SplitName> name = parse_split_name(path.filename().string());
  const std::string path_name = path.string();
  FileMap opened(path);
  GgufImage opened_image = GgufParser(opened.bytes(), path_name, layout, label).parse();
  const SplitKeys opened_keys = read_split_keys(opened_image, path_name);

  const bool named_as_part = name && name->n_parts > 1;
  const bool merged = named_as_part && opened_keys.present && opened_keys.n_parts == 1;
  if (opened_keys.n_parts > 1 && !named_as_part) {
    throw Error(
        ErrorCode::kInvalidFormat,
        fmt::format("{}: split.count is {}, expected a file name that ends in "
                    "-{:05}-of-{:05}.gguf to find the other parts by",
                    path_name, opened_keys.n_parts, opened_keys.part_idx + 1, opened_keys.n_parts));
  }
  const uint64_t n_parts = named_as_part && !merged ? name->n_parts : 1;
  if (n_parts > 1) {
    check_split_part(opened_keys, opened_keys, name->part_idx, n_parts, path_name);
  }

  auto impl = std::make_unique<Impl>();
  SplitKeys first_keys = opened_keys;
  for (uint64_t part_idx = 0; part_idx < n_parts; ++part_idx) {
    const bool is_opened = n_parts == 1 || part_idx == name->part_idx;
    const std::filesystem::path part_path =
        is_opened ? path : split_part_path(path, *name, part_idx);
    std::error_code ignored;
    if (!is_opened && !std::filesystem::exists(part_path, ignored)) {
      throw Error(ErrorCode::kFileNotFound,
                  fmt::format("part {} of {} is missing: {} (needed by {})", part_idx + 1, n_parts,
                              part_path.string(), path_name));
    }
    impl->part_names.push_back(part_path.string());
    const std::string& part_name = impl->part_names.back();
    FileMap map = is_opened ? std::move(opened) : FileMap(part_path);
    GgufImage image = is_opened ? std::move(opened_image)
                                : GgufParser(map.bytes(), part_name, layout, label).parse();
    if (n_parts > 1) {
      const SplitKeys keys = read_split_keys(image, part_name);
      first_keys = part_idx == 0 ? keys : first_keys;
      check_split_part(keys, first_keys, part_idx, n_parts, part_name);
    }
    impl->total_bytes += map.bytes().size();
    impl->maps.push_back(std::move(map));
    if (impl->tensors.size() + image.tensors.size() > kMaxTensors) {
      throw Error(
          ErrorCode::kInvalidFormat,
          fmt::format("{}: expected at most {} tensors in all parts, found {} up to this one",
                      part_name, kMaxTensors, impl->tensors.size() + image.tensors.size()));
    }
    for (GgufTensor& tensor : image.tensors) {
      tensor.part_idx = static_cast<int>(part_idx);
      impl->tensors.push_back(std::move(tensor));
    }
    if (part_idx == 0) {
      image.tensors.clear();
      impl->first = std::move(image);
    }
  }
  impl->by_name = index_by_name(impl->tensors, &GgufTensor::name);
  check_tensors(impl->tensors, impl->by_name, impl->part_names, first_keys.n_tensors);
  return GgufFile(std::move(impl));
}

GgufFile GgufFile::from_memory(std::span<const std::byte> image, const std::string& name,
                               TypeLayoutFn layout, TypeLabelFn label) {
  auto impl = std::make_unique<Impl>();
  impl->part_names.push_back(name);
  impl->total_bytes = image.size();
  impl->first = GgufParser(image, name, layout, label).parse();
  const SplitKeys keys = read_split_keys(impl->first, name);
  if (keys.n_parts > 1) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{}: expected a whole model, found part {} of {}", name,
                            keys.part_idx + 1, keys.n_parts));
  }
  impl->tensors = std::move(impl->first.tensors);
  impl->by_name = index_by_name(impl->tensors, &GgufTensor::name);
  return GgufFile(std::move(impl));
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const std::string& GgufFile::name() const {
  return impl_->part_names.front();
}
std::vector<std::string> GgufFile::part_names() const {
  return impl_->part_names;
}
uint64_t GgufFile::total_bytes() const {
  return impl_->total_bytes;
}
uint32_t GgufFile::version() const {
  return impl_->first.version;
}
std::span<const GgufKeyValue> GgufFile::metadata() const {
  return impl_->first.metadata;
}
std::span<const GgufTensor> GgufFile::tensors() const {
  return impl_->tensors;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const GgufKeyValue* entry =
      find_by_name(impl_->first.metadata, impl_->first.by_key, &GgufKeyValue::key, key);
  return entry == nullptr ? nullptr : &entry->value;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  return find_by_name(impl_->tensors, impl_->by_name, &GgufTensor::name, name);
}

namespace {

// The value of `key` by `convert`; nothing where it is absent, kInvalidFormat where `convert`
// gives nothing.
template <typename T>
std::optional<T> get_as(const GgufFile& file, std::string_view key, const char* expected,
                        std::optional<T> (GgufValue::*convert)() const) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  std::optional<T> converted = (value->*convert)();
  if (!converted) {
    const std::optional<int64_t> number = value->as_i64();
    throw Error(
        ErrorCode::kInvalidFormat,
        fmt::format("{}: metadata key {}: expected {}, found {}{}", file.name(), printable(key),
                    expected, value->type_name(), number ? fmt::format(" {}", *number) : ""));
  }
  return converted;
}

}  // namespace

std::optional<uint64_t> GgufFile::get_u64(std::string_view key) const {
  return get_as(*this, key, "an integer of at least 0", &GgufValue::as_u64);
}

std::optional<double> GgufFile::get_f64(std::string_view key) const {
  return get_as(*this, key, "a number", &GgufValue::as_f64);
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  return get_as(*this, key, "bool", &GgufValue::as_bool);
}

std::optional<std::string_view> GgufFile::get_string(std::string_view key) const {
  return get_as(*this, key, "string", &GgufValue::as_string);
}

std::optional<std::vector<std::string_view>> GgufFile::get_string_array(
    std::string_view key) const {
  return get_as(*this, key, "array of string", &GgufValue::as_string_array);
}

std::optional<std::vector<int64_t>> GgufFile::get_i64_array(std::string_view key) const {
  return get_as(*this, key, "array of integers below 2^63", &GgufValue::as_i64_array);
}

std::optional<std::vector<double>> GgufFile::get_f64_array(std::string_view key) const {
  return get_as(*this, key, "array of numbers", &GgufValue::as_f64_array);
}

}  // namespace apr
