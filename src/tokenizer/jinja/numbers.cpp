// int(text) and float(text) of Python.
#include <charconv>
#include <cstdlib>

#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

std::string_view trim_space(std::string_view text) {
  while (!text.empty()) {
    const Char c = char_at(text, 0);
    if (!is_space(c.code)) break;
    text.remove_prefix(c.size_bytes);
  }
  while (!text.empty()) {
    const size_t last = previous_char(text, text.size());
    if (!is_space(char_at(text, last).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

// Removes underscores that stand between two digits; nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  const auto is_digit_at = [&](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
    } else if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) {
      return std::nullopt;
    }
  }
  return result;
}

}  // namespace

std::optional<int64_t> parse_int(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) fail("int() base must be >= 2 and <= 36, or 0");
  text = trim_space(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) base = 10;
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  const std::string number = (negative ? "-" : "") + *digits;
  int64_t value = 0;
  const char* end = number.data() + number.size();
  const auto [ptr, error] = std::from_chars(number.data(), end, value, static_cast<int>(base));
  if (error == std::errc::result_out_of_range) fail("int(): the number does not fit 64 bits");
  if (error != std::errc() || ptr != end) return std::nullopt;
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  const auto number = without_underscores(trim_space(text));
  if (!number || number->empty()) return std::nullopt;
  // What strtod takes beyond Python: hexadecimal and "nan(...)".
  if (number->find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  if (is_space(static_cast<unsigned char>((*number)[0]))) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number->c_str(), &end);
  if (end != number->c_str() + number->size()) return std::nullopt;
  return value;
}

}  // namespace apr::jinja
