// Methods of strings that make strings and lists.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

const Str kFillSpace{" ", {}, Origin::kTemplate};
const Str kZero{"0", {}, Origin::kTemplate};

template <Case kCase>
Value case_method(Runtime& rt, Value self, const Args& args) {
  bind_none("a case method", args);
  return str_value(&change_case(rt, *self.str, kCase));
}

template <bool kLeft, bool kRight>
Value strip_method(Runtime& rt, Value self, const Args& args) {
  const auto [chars] = bind("strip()", args, {"chars"});
  return str_value(&strip(rt, *self.str, str_arg("strip()", chars), kLeft, kRight));
}

// Splits at runs of whitespace; what is left after `max_splits` keeps its whitespace.
void split_at_space(Runtime& rt, const Str& str, int64_t max_splits, List& parts) {
  const std::string_view text = str.text;
  const auto skip = [&](size_t pos, bool spaces) {
    while (pos < text.size() && is_space(char_at(text, pos).code) == spaces) {
      pos += char_at(text, pos).size_bytes;
    }
    return pos;
  };
  for (size_t pos = skip(0, true); pos < text.size();) {
    rt.step();
    if (max_splits-- == 0) {
      push(rt, parts, slice_value(rt, str, pos, text.size() - pos));
      return;
    }
    const size_t end = skip(pos, false);
    push(rt, parts, slice_value(rt, str, pos, end - pos));
    pos = skip(end, true);
  }
}

// The same from the right; parts come last first.
void rsplit_at_space(Runtime& rt, const Str& str, int64_t max_splits, List& parts) {
  const std::string_view text = str.text;
  const auto skip = [&](size_t end, bool spaces) {
    while (end > 0) {
      const size_t last = previous_char(text, end);
      if (is_space(char_at(text, last).code) != spaces) break;
      end = last;
    }
    return end;
  };
  for (size_t end = skip(text.size(), true); end > 0;) {
    rt.step();
    if (max_splits-- == 0) {
      push(rt, parts, slice_value(rt, str, 0, end));
      return;
    }
    const size_t begin = skip(end, false);
    push(rt, parts, slice_value(rt, str, begin, end - begin));
    end = skip(begin, true);
  }
}

template <bool kFromRight>
Value split_method(Runtime& rt, Value self, const Args& args) {
  const auto [separator_arg, max_arg] = bind("split()", args, {"sep", "maxsplit"});
  const Str* separator = str_arg("split()", separator_arg);
  int64_t max_splits = int_arg(max_arg, -1);
  const Str& str = *self.str;
  rt.step_bytes(str.text.size());
  List* parts = make_list(rt, ListKind::kList, 0, is_from_input(self));
  if (separator == nullptr) {
    (kFromRight ? rsplit_at_space : split_at_space)(rt, str, max_splits, *parts);
  } else {
    const std::string_view cut = separator->text;
    if (cut.empty()) fail("empty separator");
    size_t begin = 0;
    size_t end = str.text.size();
    while (max_splits-- != 0) {
      const std::string_view rest = str.text.substr(begin, end - begin);
      const size_t found = kFromRight ? rest.rfind(cut) : rest.find(cut);
      if (found == std::string_view::npos) break;
      rt.step();
      if (kFromRight) {
        push(rt, *parts, slice_value(rt, str, found + cut.size(), end - found - cut.size()));
        end = found;
      } else {
        push(rt, *parts, slice_value(rt, str, begin, found));
        begin += found + cut.size();
      }
    }
    push(rt, *parts, slice_value(rt, str, begin, end - begin));
  }
  if (kFromRight) std::reverse(parts->items, parts->items + parts->size);
  return list_value(parts);
}

template <bool kFromRight>
Value partition_method(Runtime& rt, Value self, const Args& args) {
  const auto [separator_arg] = bind("partition()", args, {"sep"}, 1);
  const std::string_view cut = required_str("partition()", separator_arg).text;
  if (cut.empty()) fail("empty separator");
  const Str& str = *self.str;
  rt.step_bytes(str.text.size());
  const bool from_input = is_from_input(self);
  const size_t found = kFromRight ? str.text.rfind(cut) : str.text.find(cut);
  const Value empty = view_str(rt, "", true);
  if (found == std::string_view::npos) {
    return kFromRight ? make_tuple(rt, {empty, empty, self}, from_input)
                      : make_tuple(rt, {self, empty, empty}, from_input);
  }
  const size_t end = found + cut.size();
  return make_tuple(rt,
                    {slice_value(rt, str, 0, found), slice_value(rt, str, found, cut.size()),
                     slice_value(rt, str, end, str.text.size() - end)},
                    from_input);
}

Value splitlines_method(Runtime& rt, Value self, const Args& args) {
  const auto [keep_ends] = bind("splitlines()", args, {"keepends"});
  return list_value(split_lines(rt, *self.str, bool_arg(keep_ends, false)));
}

Value replace_method(Runtime& rt, Value self, const Args& args) {
  const auto [old, with, count] = bind("replace()", args, {"old", "new", "count"}, 2);
  return replace_text(rt, *self.str, required_str("replace()", old),
                      required_str("replace()", with), int_arg(count, -1));
}

Value join_method(Runtime& rt, Value self, const Args& args) {
  const auto [items] = bind("join()", args, {"iterable"}, 1);
  TextBuilder out(rt);
  size_t item_idx = 0;
  for (const Value& item : iterate(rt, items)) {
    rt.step();
    if (!item.is(Type::kString)) {
      fail("sequence item {}: expected str instance, {} found", item_idx, type_name(item));
    }
    if (item_idx++ > 0) out.add(*self.str);
    out.add(*item.str);
  }
  return out.finish_value();
}

Value format_method(Runtime& rt, Value self, const Args& args) {
  return brace_format(rt, *self.str, args);
}

Value removeprefix_method(Runtime& rt, Value self, const Args& args) {
  const auto [prefix_arg] = bind("removeprefix()", args, {"prefix"}, 1);
  const size_t size = required_str("removeprefix()", prefix_arg).text.size();
  if (!self.str->text.starts_with(prefix_arg.str->text)) return self;
  return slice_value(rt, *self.str, size, self.str->text.size() - size);
}

Value removesuffix_method(Runtime& rt, Value self, const Args& args) {
  const auto [suffix_arg] = bind("removesuffix()", args, {"suffix"}, 1);
  const size_t size = required_str("removesuffix()", suffix_arg).text.size();
  if (!self.str->text.ends_with(suffix_arg.str->text)) return self;
  return slice_value(rt, *self.str, 0, self.str->text.size() - size);
}

enum class Side : uint8_t { kLeft, kCenter, kRight };

template <Side kSide>
Value justify_method(Runtime& rt, Value self, const Args& args) {
  const auto [width_arg, fill_arg] = bind("a justifying method", args, {"width", "fillchar"}, 1);
  const Str& fill = fill_arg.missing() ? kFillSpace : required_str("fillchar", fill_arg);
  if (count_chars(fill.text) != 1) fail("The fill character must be exactly one character long");
  const int64_t width = std::max<int64_t>(0, int_arg(width_arg, 0));
  if (kSide == Side::kCenter) return center_text(rt, *self.str, width, fill);
  const int64_t n_fill = width - count_chars(self.str->text);
  TextBuilder out(rt);
  if (kSide == Side::kRight) out.add_times(fill, n_fill);
  out.add(*self.str);
  if (kSide == Side::kLeft) out.add_times(fill, n_fill);
  return out.finish_value();
}

Value zfill_method(Runtime& rt, Value self, const Args& args) {
  const auto [width_arg] = bind("zfill()", args, {"width"}, 1);
  const int64_t width = std::max<int64_t>(0, int_arg(width_arg, 0));
  const Str& str = *self.str;
  const bool has_sign = !str.text.empty() && (str.text[0] == '-' || str.text[0] == '+');
  TextBuilder out(rt);
  if (has_sign) out.add_slice(str, 0, 1);
  out.add_times(kZero, width - count_chars(str.text));
  out.add_slice(str, has_sign ? 1 : 0, str.text.size() - (has_sign ? 1 : 0));
  return out.finish_value();
}

constexpr Builtin kTextMethods[] = {
    {"upper", case_method<Case::kUpper>},
    {"lower", case_method<Case::kLower>},
    {"capitalize", case_method<Case::kCapitalize>},
    {"title", case_method<Case::kTitle>},
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"splitlines", splitlines_method},
    {"replace", replace_method},
    {"join", join_method},
    {"format", format_method},
    {"removeprefix", removeprefix_method},
    {"removesuffix", removesuffix_method},
    {"ljust", justify_method<Side::kLeft>},
    {"rjust", justify_method<Side::kRight>},
    {"center", justify_method<Side::kCenter>},
    {"zfill", zfill_method},
    {"casefold", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format_map", nullptr},
    {"maketrans", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
};

}  // namespace

std::span<const Builtin> text_methods() {
  return kTextMethods;
}

}  // namespace apr::jinja
