// json.dumps of Python.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style), out_(rt) {}
  // `from_template`: of numbers, punctuation and names; strings know their own.
  void write(const Value& value, bool from_template);
  Value finish() { return out_.finish_value(); }

 private:
  void string(const Str& str, bool from_template);
  void number(const Value& value, bool from_template);
  void list(const List& list, bool from_template);
  void dict(const Dict& dict, bool from_template);
  void key(const Value& key, bool from_template);
  void line_break(bool from_template);
  std::string escape(const Char& c) const;

  Runtime& rt_;
  const JsonStyle& style_;
  TextBuilder out_;
  int level_ = 0;
};

void JsonWriter::line_break(bool from_template) {
  if (style_.indent == nullptr) return;
  out_.add("\n", from_template);
  for (int i = 0; i < level_; ++i) out_.add(*style_.indent, from_template);
}

std::string JsonWriter::escape(const Char& c) const {
  switch (c.code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (c.code >= 0x10000 && style_.ensure_ascii) {
    const int32_t offset = c.code - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
  }
  if ((c.code >= 0 && c.code < 0x20) || (c.code >= 0x7F + 1 && style_.ensure_ascii)) {
    return fmt::format("\\u{:04x}", c.code);
  }
  return {};
}

void JsonWriter::string(const Str& str, bool from_template) {
  const bool mark = from_template && str.origin == Origin::kTemplate;
  rt_.step_bytes(str.text.size() * 4);
  out_.add("\"", mark);
  Char c;
  for (CharReader reader(str); reader.next(c);) {
    const std::string escaped = escape(c);
    out_.add(
        escaped.empty() ? str.text.substr(c.begin_bytes, c.size_bytes) : std::string_view(escaped),
        from_template && c.from_template);
  }
  out_.add("\"", mark);
}

void JsonWriter::number(const Value& value, bool from_template) {
  if (!value.is(Type::kFloat)) {
    out_.add(std::to_string(value.integer), from_template);
  } else if (std::isnan(value.real)) {
    out_.add("NaN", from_template);
  } else if (std::isinf(value.real)) {
    out_.add(value.real > 0 ? "Infinity" : "-Infinity", from_template);
  } else {
    out_.add(float_text(value.real), from_template);
  }
}

void JsonWriter::list(const List& list, bool from_template) {
  out_.add("[", from_template);
  ++level_;
  for (size_t i = 0; i < list.size; ++i) {
    if (i > 0) out_.add(style_.item_separator, from_template);
    line_break(from_template);
    write(list.items[i], from_template);
  }
  --level_;
  if (list.size > 0) line_break(from_template);
  out_.add("]", from_template);
}

void JsonWriter::key(const Value& key, bool from_template) {
  if (key.is(Type::kString)) {
    string(*key.str, from_template);
    return;
  }
  if (!key.is_number() && !key.is(Type::kNone)) {
    fail("keys must be str, int, float, bool or None, not {}", type_name(key));
  }
  out_.add("\"", from_template);
  write(key, from_template);
  out_.add("\"", from_template);
}

void JsonWriter::dict(const Dict& dict, bool from_template) {
  std::span<Entry> entries = dict.span();
  if (style_.sort_keys) {
    Entry* sorted = rt_.arena.create_array<Entry>(dict.size);
    std::copy(entries.begin(), entries.end(), sorted);
    entries = {sorted, dict.size};
    std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      return order(rt_, a.key, b.key, "<") < 0;
    });
  }
  out_.add("{", from_template);
  ++level_;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out_.add(style_.item_separator, from_template);
    line_break(from_template);
    key(entries[i].key, from_template);
    out_.add(style_.key_separator, from_template);
    write(entries[i].value, from_template);
  }
  --level_;
  if (!entries.empty()) line_break(from_template);
  out_.add("}", from_template);
}

void JsonWriter::write(const Value& value, bool from_template) {
  const DepthGuard depth(rt_);
  rt_.step();
  switch (value.type) {
    case Type::kNone:
      out_.add("null", from_template);
      return;
    case Type::kBool:
      out_.add(value.boolean ? "true" : "false", from_template);
      return;
    case Type::kInt:
    case Type::kFloat:
      number(value, from_template);
      return;
    case Type::kString:
      string(*value.str, from_template);
      return;
    case Type::kDict:
      dict(*value.dict, from_template && !value.dict->from_input);
      return;
    case Type::kList:
      if (value.list->kind == ListKind::kList || value.list->kind == ListKind::kTuple) {
        list(*value.list, from_template && !value.list->from_input);
        return;
      }
      break;
    default:
      break;
  }
  fail("Object of type {} is not JSON serializable", type_name(value));
}

}  // namespace

Value to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  writer.write(value, true);
  return writer.finish();
}

}  // namespace apr::jinja
