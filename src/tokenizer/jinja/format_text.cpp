// str % value and str.format() of Python: the conversions that templates use.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

constexpr int64_t kMaxWidth = 10'000;  // of one number; wider is refused

// What both notations say about one field.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // one of < > ^ =, or none given
  char sign = '-';    // one of - + and space
  bool alternate = false;
  bool commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

[[noreturn]] void bad_spec(std::string_view why) {
  fail("format: {}", why);
}

// Reads digits at `pos`; -1 when there are none.
int64_t read_number(std::string_view text, size_t& pos) {
  if (pos >= text.size() || text[pos] < '0' || text[pos] > '9') return -1;
  int64_t number = 0;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos) {
    number = number * 10 + (text[pos] - '0');
    if (number > kMaxWidth) bad_spec(fmt::format("a width or precision above {}", kMaxWidth));
  }
  return number;
}

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
std::string int_digits(int64_t value, const Spec& spec) {
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

std::string float_digits(double value, const Spec& spec) {
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
      if (spec.precision >= 0) bad_spec("a precision without a type is not supported");
      return float_text(magnitude);
    default:
      return fmt::format("{:.{}f}", magnitude, precision);
  }
}

class Formatter {
 public:
  Formatter(Runtime& rt, const Str& format) : rt_(rt), format_(format), out_(rt) {}
  Value percent(std::span<const Value> args, const Dict* mapping, bool all_must_be_used);
  Value braces(const Args& args);

 private:
  void pad(const Str& text, const Spec& spec, char default_align);
  void number(const Value& value, const Spec& spec);
  void text_field(const Str& text, const Spec& spec);
  Spec percent_spec(size_t& pos) const;
  Spec brace_spec(std::string_view text) const;
  void percent_field(const Value& value, Spec spec);
  void brace_field(std::string_view field, const Args& args);
  const Value& brace_value(std::string_view name, const Args& args);

  Runtime& rt_;
  const Str& format_;
  TextBuilder out_;
  bool mark_ = false;  // origin of the field that is written
  int64_t next_arg_ = 0;
};

void Formatter::pad(const Str& text, const Spec& spec, char default_align) {
  const char align = spec.align == '\0' ? default_align : spec.align;
  const int64_t n_fill = std::max<int64_t>(0, spec.width - count_chars(text.text));
  const int64_t left = align == '>' ? n_fill : align == '^' ? n_fill / 2 : 0;
  const Str fill{spec.fill, {}, mark_ ? Origin::kTemplate : Origin::kInput};
  out_.add_times(fill, left);
  out_.add(text);
  out_.add_times(fill, n_fill - left);
}

void Formatter::number(const Value& value, const Spec& spec) {
  const bool is_float = value.is(Type::kFloat);
  const bool negative = is_float ? std::signbit(value.real) : value.as_int() < 0;
  std::string digits = is_float ? float_digits(value.real, spec) : int_digits(value.as_int(), spec);
  if (spec.commas) digits = with_commas(digits);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align == '=') {
    const auto n_used = static_cast<int64_t>(sign.size() + digits.size());
    const auto n_fill = static_cast<size_t>(std::max<int64_t>(0, spec.width - n_used));
    if (spec.commas && n_fill > 0) bad_spec("zeros with ',' are not supported");
    // Zeros go behind the mark of the base.
    const size_t prefix = spec.alternate && !is_float && spec.type != 'd' ? 2 : 0;
    std::string fill;
    for (size_t i = 0; i < n_fill; ++i) fill += spec.fill;
    out_.add(sign + digits.substr(0, prefix) + fill + digits.substr(prefix), true);
    return;
  }
  const std::string text = sign + digits;
  pad(Str{text, {}, Origin::kTemplate}, spec, '>');
}

void Formatter::text_field(const Str& text, const Spec& spec) {
  if (spec.precision < 0) {
    pad(text, spec, '<');
    return;
  }
  pad(slice_str(rt_, text, 0, byte_of_char(text.text, spec.precision)), spec, '<');
}

Spec Formatter::percent_spec(size_t& pos) const {
  const std::string_view text = format_.text;
  Spec spec;
  spec.align = '>';
  for (; pos < text.size(); ++pos) {
    const char c = text[pos];
    if (c == '-') {
      spec.align = '<';
      spec.fill = " ";
    } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
      spec.sign = c;
    } else if (c == '#') {
      spec.alternate = true;
    } else if (c == '0' && spec.align != '<') {
      spec.align = '=';
      spec.fill = "0";
    } else if (c != ' ' && c != '0') {
      break;
    }
  }
  spec.width = std::max<int64_t>(0, read_number(text, pos));
  if (pos < text.size() && text[pos] == '.') {
    ++pos;
    spec.precision = std::max<int64_t>(0, read_number(text, pos));
  }
  if (pos >= text.size()) bad_spec("incomplete format");
  spec.type = text[pos++];
  return spec;
}

void Formatter::percent_field(const Value& value, Spec spec) {
  const char type = spec.type;
  if (type == 's' || type == 'r') {
    if (spec.align == '=') {
      spec.align = '>';
      spec.fill = " ";
    }
    if (type == 's') {
      text_field(to_text(rt_, value), spec);
    } else {
      // repr() is what a list prints of its item.
      const Str& in_list = to_text(rt_, make_tuple(rt_, {value}, is_from_input(value)));
      text_field(slice_str(rt_, in_list, 1, in_list.text.size() - 3), spec);
    }
    return;
  }
  require_defined(value);
  if (std::string_view("diuxXo").find(type) != std::string_view::npos) {
    Value whole = value;
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (decimal && value.is(Type::kFloat)) {
      if (!(std::fabs(value.real) < 9223372036854775808.0)) bad_spec("%d of a number over 64 bits");
      whole = int_value(static_cast<int64_t>(value.real));
    }
    if (!whole.is_int_like()) {
      fail("%{} format: a number is required, not {}", type, type_name(value));
    }
    if (decimal) spec.type = 'd';
    const int64_t n_digits = std::max<int64_t>(0, spec.precision);
    if (n_digits > 0) bad_spec("a precision of an integer is not supported");
    number(whole, spec);
  } else if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
    if (!value.is_number()) fail("must be real number, not {}", type_name(value));
    if (spec.alternate) bad_spec("'#' of a float is not supported");
    number(float_value(value.as_float()), spec);
  } else {
    bad_spec(fmt::format("unsupported format character '{}'", type));
  }
}

Value Formatter::percent(std::span<const Value> args, const Dict* mapping, bool all_must_be_used) {
  const std::string_view text = format_.text;
  size_t n_used = 0;
  size_t pos = 0;
  while (pos < text.size()) {
    rt_.step();
    const size_t mark = std::min(text.find('%', pos), text.size());
    out_.add_slice(format_, pos, mark - pos);
    pos = mark;
    if (pos == text.size()) break;
    mark_ = from_template_at(format_, pos);
    ++pos;
    if (pos < text.size() && text[pos] == '%') {
      out_.add("%", mark_);
      ++pos;
      continue;
    }
    Value value;
    if (pos < text.size() && text[pos] == '(') {
      const size_t end = text.find(')', pos);
      if (mapping == nullptr) bad_spec("format requires a mapping");
      if (end == std::string_view::npos) bad_spec("incomplete format key");
      const Entry* entry = find_entry(rt_, *mapping, text.substr(pos + 1, end - pos - 1));
      if (entry == nullptr) bad_spec("a key of the format is not in the mapping");
      value = entry->value;
      pos = end + 1;
    }
    const Spec spec = percent_spec(pos);
    if (value.missing()) {
      if (n_used >= args.size()) fail("not enough arguments for format string");
      value = args[n_used++];
    }
    percent_field(value, spec);
  }
  if (all_must_be_used && n_used < args.size()) {
    fail("not all arguments converted during string formatting");
  }
  return out_.finish_value();
}

Spec Formatter::brace_spec(std::string_view text) const {
  Spec spec;
  size_t pos = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const size_t first = text.empty() ? 0 : char_at(text, 0).size_bytes;
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    pos = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[pos++];
  }
  const auto skip = [&](char c) {
    const bool here = pos < text.size() && text[pos] == c;
    if (here) ++pos;
    return here;
  };
  for (const char c : {'+', '-', ' '}) {
    if (skip(c)) {
      spec.sign = c;
      break;
    }
  }
  spec.alternate = skip('#');
  if (skip('0') && spec.align == '\0') {
    spec.align = '=';
    spec.fill = "0";
  }
  spec.width = std::max<int64_t>(0, read_number(text, pos));
  spec.commas = skip(',');
  if (skip('.')) {
    spec.precision = read_number(text, pos);
    if (spec.precision < 0) bad_spec("Format specifier missing precision");
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (pos < text.size()) bad_spec(fmt::format("Invalid format specifier '{}'", text));
  return spec;
}

const Value& Formatter::brace_value(std::string_view name, const Args& args) {
  size_t pos = 0;
  int64_t idx = read_number(name, pos);
  if (name.empty()) {
    if (next_arg_ < 0) bad_spec("automatic numbering after manual numbering");
    idx = next_arg_++;
  } else if (idx >= 0 && pos == name.size()) {
    if (next_arg_ > 0) bad_spec("manual numbering after automatic numbering");
    next_arg_ = -1;
  } else {
    if (name.find_first_of(".[") != std::string_view::npos) {
      bad_spec(fmt::format("attributes in a field ('{}') are not supported", name));
    }
    for (const NamedArg& arg : args.named) {
      if (arg.name == name) return arg.value;
    }
    bad_spec(fmt::format("no argument '{}'", name));
  }
  if (idx >= static_cast<int64_t>(args.positional.size())) {
    bad_spec(fmt::format("Replacement index {} out of range for positional args tuple", idx));
  }
  return args.positional[static_cast<size_t>(idx)];
}

void Formatter::brace_field(std::string_view field, const Args& args) {
  const size_t colon = std::min(field.find(':'), field.size());
  std::string_view name = field.substr(0, colon);
  const std::string_view spec_text = field.substr(std::min(colon + 1, field.size()));
  const size_t bang = std::min(name.find('!'), name.size());
  const std::string_view conversion = name.substr(bang);
  name = name.substr(0, bang);
  Value value = brace_value(name, args);
  if (!conversion.empty() && conversion != "!r" && conversion != "!s") {
    bad_spec(fmt::format("unsupported conversion '{}'", conversion));
  }
  Spec spec = brace_spec(spec_text);
  if (conversion == "!r" || conversion == "!s") {
    if (spec.type != '\0' && spec.type != 's') bad_spec("a number's format for a string");
    spec.type = conversion[1];
    if (spec.align == '\0') spec.align = '<';
    percent_field(value, spec);
    return;
  }
  if (value.is(Type::kString)) {
    if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-') {
      bad_spec(fmt::format("'{}' is no format of a str", spec_text));
    }
    text_field(*value.str, spec);
  } else if (spec_text.empty()) {
    text_field(to_text(rt_, value), spec);
  } else if (value.is_number()) {
    constexpr std::string_view kFloatTypes = "eEfFgG%";
    const bool as_float = kFloatTypes.find(spec.type) != std::string_view::npos;
    if (as_float) value = float_value(value.as_float());
    const std::string_view allowed = value.is(Type::kFloat) ? kFloatTypes : "dxXob";
    if (spec.type != '\0' && allowed.find(spec.type) == std::string_view::npos) {
      bad_spec(fmt::format("unknown format code '{}'", spec.type));
    }
    if (!value.is(Type::kFloat) && spec.precision >= 0) {
      bad_spec("Precision not allowed in integer format specifier");
    }
    number(value, spec);
  } else {
    fail("unsupported format string passed to {}.__format__", type_name(value));
  }
}

Value Formatter::braces(const Args& args) {
  const std::string_view text = format_.text;
  size_t pos = 0;
  while (pos < text.size()) {
    rt_.step();
    const size_t mark = std::min(text.find_first_of("{}", pos), text.size());
    out_.add_slice(format_, pos, mark - pos);
    if (mark == text.size()) break;
    mark_ = from_template_at(format_, mark);
    if (mark + 1 < text.size() && text[mark + 1] == text[mark]) {
      out_.add(text.substr(mark, 1), mark_);
      pos = mark + 2;
      continue;
    }
    if (text[mark] == '}') bad_spec("Single '}' encountered in format string");
    const size_t end = text.find_first_of("{}", mark + 1);
    if (end == std::string_view::npos) bad_spec("expected '}' before end of string");
    if (text[end] == '{') bad_spec("fields in fields are not supported");
    brace_field(text.substr(mark + 1, end - mark - 1), args);
    pos = end + 1;
  }
  return out_.finish_value();
}

}  // namespace

Value percent_format(Runtime& rt, const Str& format, const Value& value) {
  const bool is_tuple = value.is(Type::kList) && value.list->kind == ListKind::kTuple;
  const auto args = is_tuple ? std::span<const Value>(value.list->span()) : std::span(&value, 1);
  const Dict* mapping = value.is(Type::kDict) ? value.dict : nullptr;
  return Formatter(rt, format).percent(args, mapping, mapping == nullptr);
}

Value percent_format(Runtime& rt, const Str& format, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Dict* mapping = make_dict(rt, args.named.size(), false);
  for (const NamedArg& arg : args.named) {
    set_entry(rt, *mapping, make_str(rt, arg.name, true), arg.value);
  }
  return Formatter(rt, format)
      .percent(args.positional, args.named.empty() ? nullptr : mapping, true);
}

Value brace_format(Runtime& rt, const Str& format, const Args& args) {
  return Formatter(rt, format).braces(args);
}

}  // namespace apr::jinja
