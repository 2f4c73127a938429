// str() and repr() of Python.
#include <charconv>
#include <cmath>

#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t mark = text.find('e');
  int exponent = 0;
  const char* exponent_begin = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, end, exponent);
  std::string digits;  // d[0].d[1]d[2]... times 10^exponent
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const char* sign = std::signbit(value) ? "-" : "";
  const auto n_digits = static_cast<int>(digits.size());
  // As repr(): plain between 1e-4 and 1e16, otherwise with at least two digits of exponent.
  const std::string_view all = digits;
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, all[0], n_digits > 1 ? "." : "", all.substr(1),
                       exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{:0>{}}", sign, all, n_digits - exponent - 1);
  if (n_digits <= exponent + 1) return fmt::format("{}{:0<{}}.0", sign, all, exponent + 1);
  const auto whole = static_cast<size_t>(exponent + 1);
  return fmt::format("{}{}.{}", sign, all.substr(0, whole), all.substr(whole));
}

namespace {

std::string range_text(const List& list) {
  const auto [start, stop, step] = *list.range;
  return step == 1 ? fmt::format("range({}, {})", start, stop)
                   : fmt::format("range({}, {}, {})", start, stop, step);
}

char quote_of(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  return has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
}

// What repr() writes for a character between `quote`s; empty: the character itself.
std::string repr_escape(int32_t code, char quote) {
  if (code == quote || code == '\\') return {'\\', static_cast<char>(code)};
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (code < 0 || is_printable(code)) return {};
  return code < 0x100     ? fmt::format("\\x{:02x}", code)
         : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                          : fmt::format("\\U{:08x}", code);
}

class Printer {
 public:
  explicit Printer(Runtime& rt) : rt_(rt), out_(rt) {}
  void str(const Value& value, bool from_template);
  void repr(const Value& value, bool from_template);
  const Str& finish() { return out_.finish(); }

 private:
  void quoted(const Str& str);
  void items(std::span<const Value> items, bool from_template);

  Runtime& rt_;
  TextBuilder out_;
};

void Printer::quoted(const Str& str) {
  const char quote = quote_of(str.text);
  const bool quote_from_template = str.origin == Origin::kTemplate;
  out_.add({&quote, 1}, quote_from_template);
  rt_.step_bytes(str.text.size() * 4);
  Char c;
  for (CharReader reader(str); reader.next(c);) {
    const std::string_view bytes = str.text.substr(c.begin_bytes, c.size_bytes);
    const std::string escaped = repr_escape(c.code, quote);
    out_.add(escaped.empty() ? bytes : std::string_view(escaped), c.from_template);
  }
  out_.add({&quote, 1}, quote_from_template);
}

void Printer::items(std::span<const Value> items, bool from_template) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out_.add(", ", from_template);
    first = false;
    repr(item, from_template);
  }
}

void Printer::repr(const Value& value, bool from_template) {
  if (value.is(Type::kString)) {
    quoted(*value.str);
  } else if (value.is(Type::kUndefined)) {
    out_.add("Undefined", from_template);
  } else {
    str(value, from_template);
  }
}

// Of a container the punctuation is the template's unless the container is the input's.
void Printer::str(const Value& value, bool from_template) {
  const DepthGuard depth(rt_);
  rt_.step();
  switch (value.type) {
    case Type::kMissing:
    case Type::kUndefined:
      return;
    case Type::kNone:
      out_.add("None", from_template);
      return;
    case Type::kBool:
      out_.add(value.boolean ? "True" : "False", from_template);
      return;
    case Type::kInt:
      out_.add(std::to_string(value.integer), from_template);
      return;
    case Type::kFloat:
      out_.add(float_text(value.real), from_template);
      return;
    case Type::kString:
      out_.add(*value.str);
      return;
    case Type::kList: {
      const List& list = *value.list;
      const bool mark = from_template && !list.from_input;
      if (list.kind == ListKind::kGenerator) {
        fail("a generator is printed; use '|list' or '|join'");
      }
      if (list.kind == ListKind::kRange) {
        out_.add(range_text(list), mark);
        return;
      }
      const bool is_tuple = list.kind == ListKind::kTuple;
      const bool is_list = list.kind == ListKind::kList;
      if (!is_tuple && !is_list) out_.add(fmt::format("{}(", type_name(value)), mark);
      out_.add(is_tuple ? "(" : "[", mark);
      items(list.span(), mark);
      out_.add(is_tuple ? (list.size == 1 ? ",)" : ")") : "]", mark);
      if (!is_tuple && !is_list) out_.add(")", mark);
      return;
    }
    case Type::kDict:
    case Type::kNamespace: {
      const bool mark = from_template && !value.dict->from_input;
      if (value.is(Type::kNamespace)) out_.add("<Namespace ", mark);
      out_.add("{", mark);
      bool first = true;
      for (const Entry& entry : value.dict->span()) {
        if (!first) out_.add(", ", mark);
        first = false;
        repr(entry.key, mark);
        out_.add(": ", mark);
        repr(entry.value, mark);
      }
      out_.add(value.is(Type::kNamespace) ? "}>" : "}", mark);
      return;
    }
    case Type::kCallable:
    case Type::kMacro:
    case Type::kLoop:
      fail("a {} is printed", object_name(value));
  }
}

}  // namespace

const Str& to_text(Runtime& rt, const Value& value) {
  if (value.is(Type::kString)) return *value.str;
  Printer printer(rt);
  printer.str(value, true);
  return printer.finish();
}

std::string short_repr(const Value& value) {
  switch (value.type) {
    case Type::kString: {
      constexpr size_t kLongestBytes = 200;
      const std::string_view text = value.str->text;
      const char quote = quote_of(text);
      std::string result(1, quote);
      for (size_t pos = 0; pos < text.size() && pos < kLongestBytes;) {
        const Char c = char_at(text, pos);
        const std::string escaped = repr_escape(c.code, quote);
        result += escaped.empty() ? text.substr(pos, c.size_bytes) : std::string_view(escaped);
        pos += c.size_bytes;
      }
      if (text.size() > kLongestBytes) result += "...";
      return result + quote;
    }
    case Type::kNone:
      return "None";
    case Type::kBool:
      return value.boolean ? "True" : "False";
    case Type::kInt:
      return std::to_string(value.integer);
    case Type::kFloat:
      return float_text(value.real);
    case Type::kUndefined:
      return "Undefined";
    default:
      return "...";
  }
}

}  // namespace apr::jinja
