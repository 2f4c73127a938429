#include "cli/metadata.h"

#include <array>
#include <charconv>

#include "cli/output.h"

namespace apr::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename Element>
Json first_elements(const std::vector<Element>& elements, size_t n_shown) {
  Json json = Json::array();
  for (size_t idx = 0; idx < std::min(n_shown, elements.size()); ++idx) {
    json.push_back(elements[idx]);
  }
  return json;
}

Json array_json(const GgufValue& value) {
  constexpr uint64_t kMaxWhole = 64;
  constexpr size_t kFirst = 5;
  const bool is_whole = value.count() <= kMaxWhole;
  const size_t n_shown = is_whole ? kMaxWhole : kFirst;
  Json elements;
  if (const auto strings = value.as_string_array()) {
    elements = first_elements(*strings, n_shown);
  } else if (const auto integers = value.as_i64_array()) {
    elements = first_elements(*integers, n_shown);
  } else if (const auto reals = value.as_f64_array()) {
    elements = first_elements(*reals, n_shown);
  }
  if (is_whole && !elements.is_null()) {
    return elements;
  }
  return {{"type", value.type_name()}, {"count", value.count()}, {"first", std::move(elements)}};
}

Json value_json(const GgufValue& value) {
  if (value.type() == GgufValueType::kArray) {
    return array_json(value);
  }
  if (const auto text = value.as_string()) {
    return std::string(*text);
  }
  if (const auto flag = value.as_bool()) {
    return *flag;
  }
  if (const auto whole = value.as_i64()) {
    return *whole;
  }
  if (const auto whole = value.as_u64()) {
    return *whole;
  }
  if (const auto real = value.as_f64()) {
    return value.type() == GgufValueType::kF32 ? shortest(static_cast<float>(*real)) : *real;
  }
  return value.type_name();
}

}  // namespace

double shortest(float value) {
  double shortest_value = value;
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::from_chars(text.data(), end, shortest_value);
  return shortest_value;
}

Json metadata_json(const GgufFile& file) {
  Json json = Json::object();
  for (const GgufKeyValue& entry : file.metadata()) {
    json[std::string(entry.key)] = value_json(entry.value);
  }
  return json;
}

std::string compact(const Json& value) {
  constexpr size_t kMaxShown = 100;
  std::string text = value.is_string() ? in_quotes(value.get_ref<const std::string&>())
                                       : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) {
    size_t end = kMaxShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;  // not inside of a character
    }
    text = text.substr(0, end) + "...";
  }
  return text;
}

}  // namespace apr::cli
