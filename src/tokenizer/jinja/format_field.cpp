#include "tokenizer/jinja/format_field.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/ops.h"

namespace apr::jinja {

void bad_format(std::string_view why) {
  fail("format: {}", why);
}

namespace {
constexpr int64_t kMaxWidth = 10'000;  // of one number; wider is refused
}

int64_t read_format_number(std::string_view text, size_t& pos) {
  if (pos >= text.size() || text[pos] < '0' || text[pos] > '9') return -1;
  int64_t number = 0;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos) {
    number = number * 10 + (text[pos] - '0');
    if (number > kMaxWidth) bad_format(fmt::format("a width or precision above {}", kMaxWidth));
  }
  return number;
}

namespace {

std::string with_commas(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string result;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result + digits.substr(whole);
}

// Digits of |value| in a base, without sign.
std::string int_digits(int64_t value, const FieldSpec& spec) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  switch (spec.type) {
    case 'x':
      return fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
    case 'X':
      return fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
    case 'o':
      return fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
    case 'b':
      return fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
    default:
      return std::to_string(magnitude);
  }
}

std::string float_digits(double value, const FieldSpec& spec) {
  const double magnitude = std::fabs(value);
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
      return fmt::format("{:.{}g}", magnitude, precision);
    case 'G':
      return fmt::format("{:.{}G}", magnitude, precision);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    case '\0':
      if (spec.precision >= 0) bad_format("a precision without a type is not supported");
      return float_text(magnitude);
    default:
      return fmt::format("{:.{}f}", magnitude, precision);
  }
}

}  // namespace

void FieldWriter::pad(const Str& text, const FieldSpec& spec, char default_align) {
  const char align = spec.align == '\0' ? default_align : spec.align;
  const int64_t n_fill = std::max<int64_t>(0, spec.width - count_chars(text.text));
  const int64_t left = align == '>' ? n_fill : align == '^' ? n_fill / 2 : 0;
  const Str fill{spec.fill, {}, from_template ? Origin::kTemplate : Origin::kInput};
  out.add_times(fill, left);
  out.add(text);
  out.add_times(fill, n_fill - left);
}

void FieldWriter::number(const Value& value, const FieldSpec& spec) {
  const bool is_float = value.is(Type::kFloat);
  const bool negative = is_float ? std::signbit(value.real) : value.as_int() < 0;
  std::string digits = is_float ? float_digits(value.real, spec) : int_digits(value.as_int(), spec);
  if (spec.commas) digits = with_commas(digits);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align == '=') {
    const auto n_used = static_cast<int64_t>(sign.size() + digits.size());
    const auto n_fill = static_cast<size_t>(std::max<int64_t>(0, spec.width - n_used));
    if (spec.commas && n_fill > 0) bad_format("zeros with ',' are not supported");
    // Zeros go behind the mark of the base.
    const size_t prefix = spec.alternate && !is_float && spec.type != 'd' ? 2 : 0;
    std::string fill;
    for (size_t i = 0; i < n_fill; ++i) fill += spec.fill;
    out.add(sign + digits.substr(0, prefix) + fill + digits.substr(prefix), true);
    return;
  }
  const std::string text = sign + digits;
  pad(Str{text, {}, Origin::kTemplate}, spec, '>');
}

void FieldWriter::text(const Str& text, const FieldSpec& spec) {
  if (spec.precision < 0) {
    pad(text, spec, '<');
    return;
  }
  pad(slice_str(rt_, text, 0, byte_of_char(text.text, spec.precision)), spec, '<');
}

void FieldWriter::percent(const Value& value, FieldSpec spec) {
  const char type = spec.type;
  if (type == 's' || type == 'r') {
    if (spec.align == '=') {
      spec.align = '>';
      spec.fill = " ";
    }
    if (type == 's') {
      this->text(to_text(rt_, value), spec);
    } else {
      // repr() is what a list prints of its item.
      const Str& in_list = to_text(rt_, make_tuple(rt_, {value}, is_from_input(value)));
      this->text(slice_str(rt_, in_list, 1, in_list.text.size() - 3), spec);
    }
    return;
  }
  require_defined(value);
  if (std::string_view("diuxXo").find(type) != std::string_view::npos) {
    Value whole = value;
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (decimal && value.is(Type::kFloat)) {
      if (!(std::fabs(value.real) < 9223372036854775808.0))
        bad_format("%d of a number over 64 bits");
      whole = int_value(static_cast<int64_t>(value.real));
    }
    if (!whole.is_int_like()) {
      fail("%{} format: a number is required, not {}", type, type_name(value));
    }
    if (decimal) spec.type = 'd';
    const int64_t n_digits = std::max<int64_t>(0, spec.precision);
    if (n_digits > 0) bad_format("a precision of an integer is not supported");
    number(whole, spec);
  } else if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
    if (!value.is_number()) fail("must be real number, not {}", type_name(value));
    if (spec.alternate) bad_format("'#' of a float is not supported");
    number(float_value(value.as_float()), spec);
  } else {
    bad_format(fmt::format("unsupported format character '{}'", type));
  }
}

}  // namespace apr::jinja
