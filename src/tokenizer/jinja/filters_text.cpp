// Filters that make text.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

Value replace_text(Runtime& rt, const Str& str, const Str& old, const Str& with,
                   int64_t max_count) {
  const std::string_view text = str.text;
  rt.step_bytes(text.size());
  TextBuilder out(rt);
  size_t pos = 0;
  if (old.text.empty()) {
    // As Python: before each character and at the end.
    for (; max_count != 0; --max_count) {
      rt.step();
      out.add(with);
      if (pos >= text.size()) return out.finish_value();
      const size_t size = char_at(text, pos).size_bytes;
      out.add_slice(str, pos, size);
      pos += size;
    }
  }
  while (max_count != 0) {
    const size_t found = text.find(old.text, pos);
    if (found == std::string_view::npos) break;
    rt.step();
    out.add_slice(str, pos, found - pos);
    out.add(with);
    pos = found + old.text.size();
    --max_count;
  }
  if (pos == 0) return str_value(&str);
  out.add_slice(str, pos, text.size() - pos);
  return out.finish_value();
}

Value center_text(Runtime& rt, const Str& str, int64_t width_chars, const Str& fill) {
  const int64_t n_fill = std::max<int64_t>(0, width_chars) - count_chars(str.text);
  if (n_fill <= 0) return str_value(&str);
  // Python puts the odd one to the left when the width is odd.
  const int64_t left = n_fill / 2 + (n_fill & width_chars & 1);
  TextBuilder out(rt);
  out.add_times(fill, left);
  out.add(str);
  out.add_times(fill, n_fill - left);
  return out.finish_value();
}

List* split_lines(Runtime& rt, const Str& str, bool keep_ends) {
  const std::string_view text = str.text;
  rt.step_bytes(text.size());
  List* lines = make_list(rt, ListKind::kList, 0, is_from_input(str_value(&str)));
  size_t begin = 0;
  size_t pos = 0;
  while (pos < text.size()) {
    const Char c = char_at(text, pos);
    pos += c.size_bytes;
    if (!is_line_break(c.code)) continue;
    if (c.code == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    rt.step();
    push(rt, *lines, slice_value(rt, str, begin, (keep_ends ? pos : c.begin_bytes) - begin));
    begin = pos;
  }
  if (begin < text.size()) push(rt, *lines, slice_value(rt, str, begin, text.size() - begin));
  return lines;
}

namespace {

const Str kSpace{" ", {}, Origin::kTemplate};

template <Case kCase>
Value case_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("a case filter", args);
  return str_value(&change_case(rt, to_text(rt, self), kCase));
}

// Jinja's own notion of words: upper case after "-", space, "(", "{", "[", "<".
Value title_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("title", args);
  const Str& str = to_text(rt, self);
  const auto starts_word = [](int32_t code) {
    return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' ||
           code == '<';
  };
  TextBuilder out(rt);
  size_t begin = 0;
  bool in_word = false;
  const auto flush = [&](size_t end) {
    if (end == begin) return;
    const Str& part = slice_str(rt, str, begin, end - begin);
    const size_t first = char_at(part.text, 0).size_bytes;
    out.add(change_case(rt, slice_str(rt, part, 0, first), Case::kUpper));
    out.add(change_case(rt, slice_str(rt, part, first, part.text.size() - first), Case::kLower));
    begin = end;
  };
  for (size_t pos = 0; pos < str.text.size();) {
    rt.step();
    const Char c = char_at(str.text, pos);
    if (starts_word(c.code) == in_word) {
      flush(pos);
      in_word = !in_word;
    }
    pos += c.size_bytes;
  }
  flush(str.text.size());
  return out.finish_value();
}

Value trim_filter(Runtime& rt, Value self, const Args& args) {
  const auto [chars] = bind("trim", args, {"chars"});
  return str_value(&strip(rt, to_text(rt, self), str_arg("trim", chars), true, true));
}

Value replace_filter(Runtime& rt, Value self, const Args& args) {
  const auto [old, with, count] = bind("replace", args, {"old", "new", "count"}, 2);
  return replace_text(rt, to_text(rt, self), to_text(rt, old), to_text(rt, with),
                      int_arg(count, -1));
}

Value indent_filter(Runtime& rt, Value self, const Args& args) {
  const auto [width, first, blank] = bind("indent", args, {"width", "first", "blank"});
  const Str& str = required_str("indent", self);
  TextBuilder indention(rt);
  if (width.is(Type::kString)) {
    indention.add(*width.str);
  } else {
    indention.add_times(kSpace, int_arg(width, 4));
  }
  const Str& by = indention.finish();
  // Jinja adds a newline before it splits, so text that ends with one keeps an empty last line.
  TextBuilder with_end(rt);
  with_end.add(str);
  with_end.add("\n", true);
  TextBuilder out(rt);
  const bool on_blank = truthy(blank);
  const List* lines = split_lines(rt, with_end.finish(), false);
  for (size_t i = 0; i < lines->size; ++i) {
    const Str& line = *lines->items[i].str;
    if (i > 0) out.add("\n", true);
    if (i == 0 ? truthy(first) : (on_blank || !line.text.empty())) out.add(by);
    out.add(line);
  }
  return out.finish_value();
}

Value center_filter(Runtime& rt, Value self, const Args& args) {
  const auto [width] = bind("center", args, {"width"});
  return center_text(rt, to_text(rt, self), int_arg(width, 80), kSpace);
}

Value string_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("string", args);
  return str_value(&to_text(rt, self));
}

Value escape_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("escape", args);
  const Str& str = to_text(rt, self);
  TextBuilder out(rt);
  rt.step_bytes(str.text.size() * 4);
  Char c;
  for (CharReader reader(str); reader.next(c);) {
    std::string_view bytes = str.text.substr(c.begin_bytes, c.size_bytes);
    if (c.code == '&') bytes = "&amp;";
    if (c.code == '<') bytes = "&lt;";
    if (c.code == '>') bytes = "&gt;";
    if (c.code == '"') bytes = "&#34;";
    if (c.code == '\'') bytes = "&#39;";
    out.add(bytes, c.from_template);
  }
  return out.finish_value();
}

Value format_filter(Runtime& rt, Value self, const Args& args) {
  return percent_format(rt, to_text(rt, self), args);
}

Value wordcount_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("wordcount", args);
  const Str& str = to_text(rt, self);
  rt.step_bytes(str.text.size());
  int64_t n_words = 0;
  bool in_word = false;
  Char c;
  for (CharReader reader(str); reader.next(c);) {
    if (is_word(c.code) && !in_word) ++n_words;
    in_word = is_word(c.code);
  }
  return int_value(n_words);
}

Value truncate_filter(Runtime& rt, Value self, const Args& args) {
  const auto [length_arg, killwords, end_arg, leeway_arg] =
      bind("truncate", args, {"length", "killwords", "end", "leeway"});
  if (self.is(Type::kUndefined)) return self;
  const Str& str = required_str("truncate", self);
  const Str dots{"...", {}, Origin::kTemplate};
  const Str& end = end_arg.missing() ? dots : required_str("truncate", end_arg);
  const int64_t n_kept = int_arg(length_arg, 255);
  const int64_t leeway = int_arg(leeway_arg, 5);
  const int64_t n_end = count_chars(end.text);
  if (n_kept < n_end) fail("truncate: expected length >= {}, got {}", n_end, n_kept);
  if (leeway < 0) fail("truncate: expected leeway >= 0, got {}", leeway);
  const int64_t n_chars = count_chars(str.text);
  if (n_chars <= n_kept || n_chars - n_kept <= leeway) return self;
  size_t size = byte_of_char(str.text, n_kept - n_end);
  if (!truthy(killwords)) {
    const size_t space = str.text.substr(0, size).rfind(' ');
    if (space != std::string_view::npos) size = space;
  }
  TextBuilder out(rt);
  out.add_slice(str, 0, size);
  out.add(end);
  return out.finish_value();
}

// transformers' tojson: json.dumps with ensure_ascii off.
Value tojson_filter(Runtime& rt, Value self, const Args& args) {
  const auto [ensure_ascii, indent, separators, sort_keys] =
      bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  std::string indent_text;
  style.ensure_ascii = bool_arg(ensure_ascii, false);
  style.sort_keys = bool_arg(sort_keys, false);
  if (!indent.missing() && !indent.is(Type::kNone)) {
    if (indent.is(Type::kString)) {
      indent_text = indent.str->text;
    } else {
      constexpr int64_t kMaxIndent = 1000;
      const int64_t width = int_arg(indent, 0);
      if (width > kMaxIndent) fail("tojson: an indent above {}", kMaxIndent);
      indent_text.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.indent = &indent_text;
    style.item_separator = ',';
  }
  if (!separators.missing() && !separators.is(Type::kNone)) {
    const auto items = iterate(rt, separators);
    if (items.size() != 2) fail("tojson: separators must be two strings");
    style.item_separator = required_str("tojson", items[0]).text;
    style.key_separator = required_str("tojson", items[1]).text;
  }
  return to_json(rt, self, style);
}

constexpr Builtin kTextFilters[] = {
    {"upper", case_filter<Case::kUpper>},
    {"lower", case_filter<Case::kLower>},
    {"capitalize", case_filter<Case::kCapitalize>},
    {"title", title_filter},
    {"trim", trim_filter},
    {"replace", replace_filter},
    {"indent", indent_filter},
    {"center", center_filter},
    {"string", string_filter},
    {"safe", string_filter},
    {"escape", escape_filter},
    {"e", escape_filter},
    {"forceescape", escape_filter},
    {"format", format_filter},
    {"wordcount", wordcount_filter},
    {"truncate", truncate_filter},
    {"tojson", tojson_filter},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

}  // namespace apr::jinja
