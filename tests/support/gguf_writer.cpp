#include "support/gguf_writer.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <system_error>

#include "apr/quant.h"

namespace apr::test {
namespace {

// Appends `text` padded to `alignment_bytes`, and returns where it started.
uint64_t append_aligned(std::vector<std::byte>& out, std::span<const std::byte> data,
                        uint64_t alignment_bytes) {
  const uint64_t offset_bytes = out.size();
  out.insert(out.end(), data.begin(), data.end());
  out.resize((out.size() + alignment_bytes - 1) / alignment_bytes * alignment_bytes);
  return offset_bytes;
}

}  // namespace

ByteBuilder& ByteBuilder::put_bytes(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

ByteBuilder& ByteBuilder::put_text(std::string_view text) {
  return put_bytes(std::as_bytes(std::span(text)));
}

ByteBuilder& ByteBuilder::put_string(std::string_view text) {
  return put<uint64_t>(text.size()).put_text(text);
}

ByteBuilder& ByteBuilder::pad_to(uint64_t alignment_bytes) {
  bytes_.resize((bytes_.size() + alignment_bytes - 1) / alignment_bytes * alignment_bytes);
  return *this;
}

GgufWriter GgufWriter::copy_of(const GgufFile& file) {
  GgufWriter writer;
  writer.version_ = file.version();
  writer.alignment_bytes_ = static_cast<uint32_t>(file.get_u64("general.alignment").value_or(32));
  for (const GgufKeyValue& entry : file.metadata()) {
    if (!entry.key.starts_with("split.")) {
      const std::span<const std::byte> payload = entry.value.payload();
      writer.set_value({std::string(entry.key),
                        entry.value.type(),
                        entry.value.element_type(),
                        entry.value.count(),
                        {payload.begin(), payload.end()}});
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    writer.add_tensor({std::string(tensor.name),
                       tensor.shape,
                       tensor.type_id,
                       {tensor.data.begin(), tensor.data.end()}});
  }
  return writer;
}

void GgufWriter::set_alignment(uint32_t alignment_bytes) {
  alignment_bytes_ = alignment_bytes;
  set<uint32_t>("general.alignment", alignment_bytes);
}

void GgufWriter::set_string(std::string_view key, std::string_view text) {
  ByteBuilder payload;
  payload.put_text(text);
  set_value({std::string(key), GgufValueType::kString, GgufValueType::kString, 1, payload.bytes()});
}

void GgufWriter::set_string_array(std::string_view key, const std::vector<std::string>& texts) {
  ByteBuilder payload;
  for (const std::string& text : texts) {
    payload.put_string(text);
  }
  set_value({std::string(key), GgufValueType::kArray, GgufValueType::kString, texts.size(),
             payload.bytes()});
}

void GgufWriter::set_value(WriterValue value) {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const WriterValue& other) { return other.key == value.key; });
  if (found == values_.end()) {
    values_.push_back(std::move(value));
  } else {
    *found = std::move(value);
  }
}

void GgufWriter::remove(std::string_view key) {
  if (std::erase_if(values_, [&](const WriterValue& value) { return value.key == key; }) == 0) {
    throw std::runtime_error(fmt::format("no key {} to remove", key));
  }
}

const WriterValue& GgufWriter::value(std::string_view key) const {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const WriterValue& value) { return value.key == key; });
  if (found == values_.end()) {
    throw std::runtime_error(fmt::format("no key {}", key));
  }
  return *found;
}

bool GgufWriter::has_value(std::string_view key) const {
  return std::any_of(values_.begin(), values_.end(),
                     [&](const WriterValue& value) { return value.key == key; });
}

WriterTensor& GgufWriter::tensor(std::string_view name) {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const WriterTensor& tensor) { return tensor.name == name; });
  if (found == tensors_.end()) {
    throw std::runtime_error(fmt::format("no tensor {}", name));
  }
  return *found;
}

bool GgufWriter::has_tensor(std::string_view name) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const WriterTensor& tensor) { return tensor.name == name; });
}

void GgufWriter::remove_tensor(std::string_view name) {
  if (std::erase_if(tensors_, [&](const WriterTensor& tensor) { return tensor.name == name; }) ==
      0) {
    throw std::runtime_error(fmt::format("no tensor {} to remove", name));
  }
}

void GgufWriter::rename_tensor(std::string_view name, std::string_view new_name) {
  tensor(name).name = new_name;
}

ByteBuilder GgufWriter::head(std::span<const uint64_t> offset_bytes) const {
  ByteBuilder head;
  head.put_text("GGUF").put(version_).put<uint64_t>(tensors_.size()).put<uint64_t>(values_.size());
  for (const WriterValue& value : values_) {
    head.put_string(value.key).put(static_cast<uint32_t>(value.type));
    if (value.type == GgufValueType::kArray) {
      head.put(static_cast<uint32_t>(value.element_type)).put(value.count);
    } else if (value.type == GgufValueType::kString) {
      head.put<uint64_t>(value.payload.size());
    }
    head.put_bytes(value.payload);
  }
  for (size_t idx = 0; idx < tensors_.size(); ++idx) {
    const WriterTensor& tensor = tensors_[idx];
    head.put_string(tensor.name).put(static_cast<uint32_t>(tensor.shape.size()));
    for (auto axis = tensor.shape.rbegin(); axis != tensor.shape.rend(); ++axis) {
      head.put(*axis);
    }
    head.put(tensor.type_id).put(offset_bytes[idx]);
  }
  return head.pad_to(alignment_bytes_);
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::vector<std::byte> data;
  std::vector<uint64_t> offset_bytes;
  for (const WriterTensor& tensor : tensors_) {
    offset_bytes.push_back(append_aligned(data, tensor.data, alignment_bytes_));
  }
  return head(offset_bytes).put_bytes(data).bytes();
}

void GgufWriter::write_sparse(const std::filesystem::path& path) const {
  uint64_t end_bytes = 0;
  std::vector<uint64_t> offset_bytes;
  for (const WriterTensor& tensor : tensors_) {
    offset_bytes.push_back(end_bytes);
    uint64_t n_elems = 1;
    for (const int64_t axis : tensor.shape) {
      n_elems *= static_cast<uint64_t>(axis);
    }
    const TypeLayout layout = quant_type_layout(tensor.type_id).value();
    end_bytes += n_elems / static_cast<uint64_t>(layout.block_elems) *
                 static_cast<uint64_t>(layout.block_bytes);
    end_bytes = (end_bytes + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_;
  }
  const ByteBuilder start = head(offset_bytes);
  write_file(path, start.bytes());
  std::filesystem::resize_file(path, start.size() + end_bytes);
}

void GgufWriter::write(const std::filesystem::path& path) const {
  write_file(path, bytes());
}

std::vector<GgufWriter> GgufWriter::split(uint16_t n_parts, bool vocabulary_first) const {
  const size_t n_holders = vocabulary_first ? n_parts - 1u : n_parts;
  std::vector<GgufWriter> parts(n_parts);
  for (uint16_t part_idx = 0; part_idx < n_parts; ++part_idx) {
    GgufWriter& part = parts[part_idx];
    part.version_ = version_;
    part.alignment_bytes_ = alignment_bytes_;
    if (part_idx == 0) {
      part.values_ = values_;
    } else if (alignment_bytes_ != 32) {
      part.set<uint32_t>("general.alignment", alignment_bytes_);
    }
    part.set<uint16_t>("split.no", part_idx);
    part.set<uint16_t>("split.count", n_parts);
    part.set<int32_t>("split.tensors.count", static_cast<int32_t>(tensors_.size()));
    for (size_t tensor_idx = 0; tensor_idx < tensors_.size(); ++tensor_idx) {
      const size_t holder_idx = tensor_idx * n_holders / tensors_.size();
      if (holder_idx + (vocabulary_first ? 1 : 0) == part_idx) {
        part.tensors_.push_back(tensors_[tensor_idx]);
      }
    }
  }
  return parts;
}

std::vector<std::filesystem::path> GgufWriter::write_split(const std::filesystem::path& folder,
                                                           const std::string& prefix,
                                                           uint16_t n_parts,
                                                           bool vocabulary_first) const {
  std::vector<std::filesystem::path> paths;
  for (const GgufWriter& part : split(n_parts, vocabulary_first)) {
    paths.push_back(folder /
                    fmt::format("{}-{:05}-of-{:05}.gguf", prefix, paths.size() + 1, n_parts));
    part.write(paths.back());
  }
  return paths;
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<std::byte> bytes(in ? std::filesystem::file_size(path) : 0);
  if (!in ||
      !in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
    throw std::runtime_error("cannot read " + path.string());
  }
  return bytes;
}

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "apr-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("cannot make a folder like " + pattern);
  }
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace apr::test
