// str.format() of Python, without attributes and fields in fields.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/format_field.h"
#include "tokenizer/jinja/ops.h"

namespace apr::jinja {

namespace {

FieldSpec brace_spec(std::string_view text) {
  FieldSpec spec;
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
  spec.width = std::max<int64_t>(0, read_format_number(text, pos));
  spec.commas = skip(',');
  if (skip('.')) {
    spec.precision = read_format_number(text, pos);
    if (spec.precision < 0) bad_format("Format specifier missing precision");
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (pos < text.size()) bad_format(fmt::format("Invalid format specifier '{}'", text));
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const Str& format) : rt_(rt), format_(format), writer_(rt) {}
  Value braces(const Args& args);

 private:
  void brace_field(std::string_view field, const Args& args);
  const Value& brace_value(std::string_view name, const Args& args);

  Runtime& rt_;
  const Str& format_;
  FieldWriter writer_;
  int64_t next_arg_ = 0;  // -1: fields are numbered by hand
};

const Value& BraceFormatter::brace_value(std::string_view name, const Args& args) {
  size_t pos = 0;
  int64_t idx = read_format_number(name, pos);
  if (name.empty()) {
    if (next_arg_ < 0) bad_format("automatic numbering after manual numbering");
    idx = next_arg_++;
  } else if (idx >= 0 && pos == name.size()) {
    if (next_arg_ > 0) bad_format("manual numbering after automatic numbering");
    next_arg_ = -1;
  } else {
    if (name.find_first_of(".[") != std::string_view::npos) {
      bad_format(fmt::format("attributes in a field ('{}') are not supported", name));
    }
    for (const NamedArg& arg : args.named) {
      if (arg.name == name) return arg.value;
    }
    bad_format(fmt::format("no argument '{}'", name));
  }
  if (idx >= static_cast<int64_t>(args.positional.size())) {
    bad_format(fmt::format("Replacement index {} out of range for positional args tuple", idx));
  }
  return args.positional[static_cast<size_t>(idx)];
}

void BraceFormatter::brace_field(std::string_view field, const Args& args) {
  const size_t colon = std::min(field.find(':'), field.size());
  std::string_view name = field.substr(0, colon);
  const std::string_view spec_text = field.substr(std::min(colon + 1, field.size()));
  const size_t bang = std::min(name.find('!'), name.size());
  const std::string_view conversion = name.substr(bang);
  name = name.substr(0, bang);
  Value value = brace_value(name, args);
  if (!conversion.empty() && conversion != "!r" && conversion != "!s") {
    bad_format(fmt::format("unsupported conversion '{}'", conversion));
  }
  FieldSpec spec = brace_spec(spec_text);
  if (conversion == "!r" || conversion == "!s") {
    if (spec.type != '\0' && spec.type != 's') bad_format("a number's format for a string");
    spec.type = conversion[1];
    if (spec.align == '\0') spec.align = '<';
    writer_.percent(value, spec);
    return;
  }
  if (value.is(Type::kString)) {
    if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-') {
      bad_format(fmt::format("'{}' is no format of a str", spec_text));
    }
    writer_.text(*value.str, spec);
  } else if (spec_text.empty()) {
    writer_.text(to_text(rt_, value), spec);
  } else if (value.is_number()) {
    constexpr std::string_view kFloatTypes = "eEfFgG%";
    const bool as_float = kFloatTypes.find(spec.type) != std::string_view::npos;
    if (as_float) value = float_value(value.as_float());
    const std::string_view allowed = value.is(Type::kFloat) ? kFloatTypes : "dxXob";
    if (spec.type != '\0' && allowed.find(spec.type) == std::string_view::npos) {
      bad_format(fmt::format("unknown format code '{}'", spec.type));
    }
    if (!value.is(Type::kFloat) && spec.precision >= 0) {
      bad_format("Precision not allowed in integer format specifier");
    }
    writer_.number(value, spec);
  } else {
    fail("unsupported format string passed to {}.__format__", type_name(value));
  }
}

Value BraceFormatter::braces(const Args& args) {
  const std::string_view text = format_.text;
  size_t pos = 0;
  while (pos < text.size()) {
    rt_.step();
    const size_t mark = std::min(text.find_first_of("{}", pos), text.size());
    writer_.out.add_slice(format_, pos, mark - pos);
    if (mark == text.size()) break;
    writer_.from_template = from_template_at(format_, mark);
    if (mark + 1 < text.size() && text[mark + 1] == text[mark]) {
      writer_.out.add(text.substr(mark, 1), writer_.from_template);
      pos = mark + 2;
      continue;
    }
    if (text[mark] == '}') bad_format("Single '}' encountered in format string");
    const size_t end = text.find_first_of("{}", mark + 1);
    if (end == std::string_view::npos) bad_format("expected '}' before end of string");
    if (text[end] == '{') bad_format("fields in fields are not supported");
    brace_field(text.substr(mark + 1, end - mark - 1), args);
    pos = end + 1;
  }
  return writer_.out.finish_value();
}

}  // namespace

Value brace_format(Runtime& rt, const Str& format, const Args& args) {
  return BraceFormatter(rt, format).braces(args);
}

}  // namespace apr::jinja
