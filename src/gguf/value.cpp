// GgufValue: conversions out of the mapped bytes, which the parser has validated.
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "apr/error.h"
#include "apr/gguf.h"
#include "gguf/value_types.h"

namespace apr {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read in host byte order");

struct ValueTypeRow {
  const char* name;
  uint64_t n_bytes;
};

// By GgufValueType.
constexpr std::array<ValueTypeRow, kNumGgufValueTypes> kValueTypes = {{
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
}};

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// A number of any type, without loss: every integer type fits one of the two integer fields.
struct Number {
  enum class Kind { kNone, kUnsigned, kSigned, kFloat } kind = Kind::kNone;
  uint64_t u = 0;
  int64_t i = 0;
  double f = 0.0;
};

Number unsigned_number(uint64_t value) {
  return {.kind = Number::Kind::kUnsigned, .u = value};
}
Number signed_number(int64_t value) {
  return {.kind = Number::Kind::kSigned, .i = value};
}
Number float_number(double value) {
  return {.kind = Number::Kind::kFloat, .f = value};
}

// The number of type `type` at `at`; kNone for bool, string and array.
Number load_number(GgufValueType type, const std::byte* at) {
  switch (type) {
    case GgufValueType::kU8:
      return unsigned_number(load<uint8_t>(at));
    case GgufValueType::kU16:
      return unsigned_number(load<uint16_t>(at));
    case GgufValueType::kU32:
      return unsigned_number(load<uint32_t>(at));
    case GgufValueType::kU64:
      return unsigned_number(load<uint64_t>(at));
    case GgufValueType::kI8:
      return signed_number(load<int8_t>(at));
    case GgufValueType::kI16:
      return signed_number(load<int16_t>(at));
    case GgufValueType::kI32:
      return signed_number(load<int32_t>(at));
    case GgufValueType::kI64:
      return signed_number(load<int64_t>(at));
    case GgufValueType::kF32:
      return float_number(load<float>(at));
    case GgufValueType::kF64:
      return float_number(load<double>(at));
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return {};
}

std::optional<uint64_t> to_u64(const Number& number) {
  if (number.kind == Number::Kind::kUnsigned) {
    return number.u;
  }
  if (number.kind == Number::Kind::kSigned && number.i >= 0) {
    return static_cast<uint64_t>(number.i);
  }
  return std::nullopt;
}

std::optional<int64_t> to_i64(const Number& number) {
  if (number.kind == Number::Kind::kSigned) {
    return number.i;
  }
  if (number.kind == Number::Kind::kUnsigned &&
      number.u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return static_cast<int64_t>(number.u);
  }
  return std::nullopt;
}

// An integer converts where its significant bits fit the 53 of a double.
std::optional<double> to_f64(const Number& number) {
  if (number.kind == Number::Kind::kFloat) {
    return number.f;
  }
  if (number.kind == Number::Kind::kNone) {
    return std::nullopt;
  }
  const bool is_negative = number.kind == Number::Kind::kSigned && number.i < 0;
  const uint64_t magnitude = is_negative ? 0 - static_cast<uint64_t>(number.i)
                             : number.kind == Number::Kind::kSigned
                                 ? static_cast<uint64_t>(number.i)
                                 : number.u;
  if (magnitude != 0 && std::bit_width(magnitude) - std::countr_zero(magnitude) >
                            std::numeric_limits<double>::digits) {
    return std::nullopt;
  }
  return is_negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

}  // namespace

const char* gguf_value_type_name(GgufValueType type) {
  return kValueTypes[static_cast<uint32_t>(type)].name;
}

uint64_t gguf_value_bytes(GgufValueType type) {
  return kValueTypes[static_cast<uint32_t>(type)].n_bytes;
}

std::string GgufValue::type_name() const {
  const char* element = gguf_value_type_name(element_type_);
  return type_ == GgufValueType::kArray ? std::string("array of ") + element : element;
}

std::optional<uint64_t> GgufValue::as_u64() const {
  return payload_.empty() ? std::nullopt : to_u64(load_number(type_, payload_.data()));
}

std::optional<int64_t> GgufValue::as_i64() const {
  return payload_.empty() ? std::nullopt : to_i64(load_number(type_, payload_.data()));
}

std::optional<double> GgufValue::as_f64() const {
  return payload_.empty() ? std::nullopt : to_f64(load_number(type_, payload_.data()));
}

std::optional<bool> GgufValue::as_bool() const {
  if (type_ != GgufValueType::kBool) {
    return std::nullopt;
  }
  return load<uint8_t>(payload_.data()) != 0;
}

std::optional<std::string_view> GgufValue::as_string() const {
  if (type_ != GgufValueType::kString) {
    return std::nullopt;
  }
  return std::string_view(reinterpret_cast<const char*>(payload_.data()), payload_.size());
}

std::optional<std::vector<std::string_view>> GgufValue::as_string_array() const {
  if (type_ != GgufValueType::kArray || element_type_ != GgufValueType::kString) {
    return std::nullopt;
  }
  std::vector<std::string_view> texts;
  texts.reserve(count_);
  const std::byte* at = payload_.data();
  for (uint64_t idx = 0; idx < count_; ++idx) {
    const uint64_t n_bytes = load<uint64_t>(at);
    texts.emplace_back(reinterpret_cast<const char*>(at + sizeof(uint64_t)), n_bytes);
    at += sizeof(uint64_t) + n_bytes;
  }
  return texts;
}

std::optional<std::vector<int64_t>> GgufValue::as_i64_array() const {
  if (type_ != GgufValueType::kArray) {
    return std::nullopt;
  }
  // Bools count as the integers 0 and 1 here: pattern arrays come as either.
  const GgufValueType read_as =
      element_type_ == GgufValueType::kBool ? GgufValueType::kU8 : element_type_;
  const uint64_t stride_bytes = gguf_value_bytes(read_as);
  if (stride_bytes == 0) {
    return std::nullopt;
  }
  std::vector<int64_t> values;
  values.reserve(count_);
  for (uint64_t idx = 0; idx < count_; ++idx) {
    const auto value = to_i64(load_number(read_as, payload_.data() + idx * stride_bytes));
    if (!value) {
      return std::nullopt;
    }
    values.push_back(*value);
  }
  return values;
}

std::optional<std::vector<double>> GgufValue::as_f64_array() const {
  const uint64_t stride_bytes = gguf_value_bytes(element_type_);
  if (type_ != GgufValueType::kArray || stride_bytes == 0) {
    return std::nullopt;
  }
  std::vector<double> values;
  values.reserve(count_);
  for (uint64_t idx = 0; idx < count_; ++idx) {
    const auto value = to_f64(load_number(element_type_, payload_.data() + idx * stride_bytes));
    if (!value) {
      return std::nullopt;
    }
    values.push_back(*value);
  }
  return values;
}

}  // namespace apr
