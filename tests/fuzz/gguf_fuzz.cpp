// libFuzzer target of the GGUF reader: any bytes are a good file or an apr::Error, and a good file
// is what the header of apr/gguf.h promises.
#include <cstddef>
#include <cstdint>

#include "apr/error.h"
#include "apr/gguf.h"
#include "apr/quant.h"
#include "gguf/split.h"
#include "gguf/text.h"

namespace apr {
namespace {

// Calls `getter`; a value of another type is an error of the file, not of ours.
template <typename Getter>
void expect_value_or_error(Getter getter) {
  try {
    getter();
  } catch (const Error& error) {
    APR_CHECK(error.code() == ErrorCode::kInvalidFormat, error.what());
  }
}

uint64_t sum_of_bytes(std::string_view text) {
  uint64_t sum = 0;
  for (const char byte : text) {
    sum += static_cast<uint8_t>(byte);
  }
  return sum;
}

// Reads every byte of every value through every conversion.
uint64_t read_metadata(const GgufFile& file) {
  uint64_t sum = 0;
  for (const GgufKeyValue& entry : file.metadata()) {
    const GgufValue& value = entry.value;
    APR_CHECK(is_utf8(entry.key) && !entry.key.empty(), "a key is text");
    APR_CHECK(file.find(entry.key) == &value, "a key is found");
    APR_CHECK(!value.type_name().empty(), "a type has a name");
    sum += value.as_u64().value_or(0) + static_cast<uint64_t>(value.as_i64().value_or(0));
    sum += value.as_f64().has_value() + value.as_bool().value_or(false);
    sum += sum_of_bytes(value.as_string().value_or(""));
    if (const auto texts = value.as_string_array()) {
      APR_CHECK(texts->size() == value.count(), "all strings are there");
      for (const std::string_view text : *texts) {
        sum += sum_of_bytes(text);
      }
    }
    for (const int64_t number : value.as_i64_array().value_or(std::vector<int64_t>())) {
      sum += static_cast<uint64_t>(number);
    }
    sum += value.as_f64_array().value_or(std::vector<double>()).size();
    expect_value_or_error([&] { (void)file.get_u64(entry.key); });
    expect_value_or_error([&] { (void)file.get_f64(entry.key); });
    expect_value_or_error([&] { (void)file.get_bool(entry.key); });
    expect_value_or_error([&] { (void)file.get_string(entry.key); });
    expect_value_or_error([&] { (void)file.get_string_array(entry.key); });
    expect_value_or_error([&] { (void)file.get_i64_array(entry.key); });
    expect_value_or_error([&] { (void)file.get_f64_array(entry.key); });
  }
  return sum;
}

void read_tensors(const GgufFile& file, std::span<const std::byte> image) {
  for (const GgufTensor& tensor : file.tensors()) {
    APR_CHECK(is_utf8(tensor.name) && !tensor.name.empty(), "a name is text");
    APR_CHECK(file.find_tensor(tensor.name) == &tensor, "a tensor is found");
    APR_CHECK(!tensor.shape.empty() && tensor.shape.size() <= 4, "1 to 4 axes");
    const QuantType* type = find_quant_type(tensor.type_id);
    APR_CHECK(type != nullptr, "a type is known");
    uint64_t size_bytes = static_cast<uint64_t>(type->row_bytes(tensor.shape.back()));
    for (size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis) {
      size_bytes *= static_cast<uint64_t>(tensor.shape[axis]);
    }
    APR_CHECK(size_bytes == tensor.data.size() && size_bytes > 0,
              "data is as long as the shape says");
    APR_CHECK(tensor.file_offset_bytes <= image.size() &&
                  size_bytes <= image.size() - tensor.file_offset_bytes &&
                  tensor.data.data() == image.data() + tensor.file_offset_bytes,
              "data lies in the file");
  }
}

}  // namespace
}  // namespace apr

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> image = std::as_bytes(std::span(data, size));
  try {
    const apr::GgufFile file =
        apr::GgufFile::from_memory(image, "fuzz", apr::quant_type_layout, apr::quant_type_label);
    volatile uint64_t sink = apr::read_metadata(file);
    (void)sink;
    apr::read_tensors(file, image);
  } catch (const apr::Error& error) {
    APR_CHECK(error.code() == apr::ErrorCode::kInvalidFormat ||
                  error.code() == apr::ErrorCode::kModelLoad,
              error.what());
    APR_CHECK(apr::is_utf8(error.what()), "a message is text");
  }
  return 0;
}
