// str % value of Python.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/format_field.h"

namespace apr::jinja {

namespace {

FieldSpec percent_spec(std::string_view text, size_t& pos) {
  FieldSpec spec;
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
  spec.width = std::max<int64_t>(0, read_format_number(text, pos));
  if (pos < text.size() && text[pos] == '.') {
    ++pos;
    spec.precision = std::max<int64_t>(0, read_format_number(text, pos));
  }
  if (pos >= text.size()) bad_format("incomplete format");
  spec.type = text[pos++];
  return spec;
}

Value percent(Runtime& rt, const Str& format, std::span<const Value> args, const Dict* mapping,
              bool all_must_be_used) {
  FieldWriter writer(rt);
  const std::string_view text = format.text;
  size_t n_used = 0;
  size_t pos = 0;
  while (pos < text.size()) {
    rt.step();
    const size_t mark = std::min(text.find('%', pos), text.size());
    writer.out.add_slice(format, pos, mark - pos);
    pos = mark;
    if (pos == text.size()) break;
    writer.from_template = from_template_at(format, pos);
    ++pos;
    if (pos < text.size() && text[pos] == '%') {
      writer.out.add("%", writer.from_template);
      ++pos;
      continue;
    }
    Value value;
    if (pos < text.size() && text[pos] == '(') {
      const size_t end = text.find(')', pos);
      if (mapping == nullptr) bad_format("format requires a mapping");
      if (end == std::string_view::npos) bad_format("incomplete format key");
      const Entry* entry = find_entry(rt, *mapping, text.substr(pos + 1, end - pos - 1));
      if (entry == nullptr) bad_format("a key of the format is not in the mapping");
      value = entry->value;
      pos = end + 1;
    }
    const FieldSpec spec = percent_spec(text, pos);
    if (value.missing()) {
      if (n_used >= args.size()) fail("not enough arguments for format string");
      value = args[n_used++];
    }
    writer.percent(value, spec);
  }
  if (all_must_be_used && n_used < args.size()) {
    fail("not all arguments converted during string formatting");
  }
  return writer.out.finish_value();
}

}  // namespace

Value percent_format(Runtime& rt, const Str& format, const Value& value) {
  const bool is_tuple = value.is(Type::kList) && value.list->kind == ListKind::kTuple;
  const auto args = is_tuple ? std::span<const Value>(value.list->span()) : std::span(&value, 1);
  const Dict* mapping = value.is(Type::kDict) ? value.dict : nullptr;
  // What can be subscripted may be left over, as a mapping may.
  const bool subscriptable = mapping != nullptr || value.is(Type::kUndefined) ||
                             (value.is(Type::kList) && (value.list->kind == ListKind::kList ||
                                                        value.list->kind == ListKind::kRange));
  return percent(rt, format, args, mapping, !subscriptable);
}

Value percent_format(Runtime& rt, const Str& format, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Dict* mapping = make_dict(rt, args.named.size(), false);
  for (const NamedArg& arg : args.named) {
    set_entry(rt, *mapping, make_str(rt, arg.name, true), arg.value);
  }
  return percent(rt, format, args.positional, args.named.empty() ? nullptr : mapping, true);
}

}  // namespace apr::jinja
