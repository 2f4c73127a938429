#include "cli/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "apr/error.h"

namespace apr::cli {
namespace {

// Parses all of `text`; false where it is not a number of this type or has something after it.
template <typename Number>
bool parse_all(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

template <typename Number>
[[noreturn]] void refuse(const std::string& flag, const std::string& text, const char* kind,
                         Number min, Number max) {
  throw Error(ErrorCode::kUsage, fmt::format("{} is \"{}\"; it must be a {} from {} to {}", flag,
                                             text, kind, min, max));
}

}  // namespace

int64_t parse_whole(const std::string& flag, const std::string& text, int64_t min, int64_t max) {
  int64_t value = 0;
  if (!parse_all(text, value) || value < min || value > max) {
    refuse(flag, text, "whole number", min, max);
  }
  return value;
}

double parse_real(const std::string& flag, const std::string& text, double min, double max) {
  double value = 0.0;
  if (!parse_all(text, value) || !(value >= min && value <= max)) {
    refuse(flag, text, "number", min, max);
  }
  return value;
}

uint64_t parse_memory(const std::string& flag, const std::string& text) {
  constexpr uint64_t kLeastBytes = uint64_t{1} << 20;
  const char unit = text.empty() ? '\0' : text.back();
  const int shift = unit == 'G' ? 30 : unit == 'M' ? 20 : 0;
  uint64_t value = 0;
  if (!parse_all(shift == 0 ? text : text.substr(0, text.size() - 1), value) ||
      value > std::numeric_limits<uint64_t>::max() >> shift || value << shift < kLeastBytes) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is \"{}\"; it must be 1 MiB or more: bytes, or GiB or MiB as 24G "
                            "and 512M",
                            flag, text));
  }
  return value << shift;
}

uint64_t parse_seed(const std::string& flag, const std::string& text) {
  uint64_t value = 0;
  if (!parse_all(text, value)) {
    refuse(flag, text, "whole number", uint64_t{0}, std::numeric_limits<uint64_t>::max());
  }
  return value;
}

}  // namespace apr::cli
