// Methods of strings that search and classify.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

// The part of a string between character positions as Python's start and end arguments name it.
struct Window {
  std::string_view text;
  int64_t first_char = 0;
  bool beyond = false;  // start is past the end: not even "" is found there
};

Window window(const Str& str, const Value& start, const Value& end) {
  if (start.missing() && end.missing()) return {str.text, 0, false};
  const int64_t n_chars = count_chars(str.text);
  const auto place = [&](const Value& value, int64_t fallback) {
    const int64_t idx = int_arg(value, fallback);
    return idx < 0 ? std::max<int64_t>(0, idx + n_chars) : idx;
  };
  const int64_t from = place(start, 0);
  const int64_t to = std::min(place(end, n_chars), n_chars);
  if (from > to) return {{}, from, true};
  const size_t begin_bytes = byte_of_char(str.text, from);
  const size_t end_bytes = byte_of_char(str.text, to);
  return {str.text.substr(begin_bytes, end_bytes - begin_bytes), from, false};
}

template <bool kStart>
Value affix_method(Runtime& rt, Value self, const Args& args) {
  constexpr const char* kName = kStart ? "startswith()" : "endswith()";
  const auto [affix, start, end] = bind(kName, args, {"affix", "start", "end"}, 1);
  const Window part = window(*self.str, start, end);
  const auto matches = [&](const Value& value) {
    const std::string_view text = required_str(kName, value).text;
    rt.step();
    rt.step_bytes(text.size());
    return !part.beyond && (kStart ? part.text.starts_with(text) : part.text.ends_with(text));
  };
  if (!affix.is(Type::kList) || affix.list->kind != ListKind::kTuple) {
    return bool_value(matches(affix));
  }
  const auto options = affix.list->span();
  return bool_value(std::any_of(options.begin(), options.end(), matches));
}

template <bool kFromRight, bool kMustExist>
Value find_method_of(Runtime& rt, Value self, const Args& args) {
  constexpr const char* kName = kMustExist ? "index()" : "find()";
  const auto [needle, start, end] = bind(kName, args, {"sub", "start", "end"}, 1);
  const std::string_view text = required_str(kName, needle).text;
  rt.step_bytes(self.str->text.size() * 2);
  const Window part = window(*self.str, start, end);
  const size_t found = part.beyond  ? std::string_view::npos
                       : kFromRight ? part.text.rfind(text)
                                    : part.text.find(text);
  if (found != std::string_view::npos) {
    return int_value(part.first_char + count_chars(part.text.substr(0, found)));
  }
  if (kMustExist) fail("substring not found");
  return int_value(-1);
}

Value count_text_method(Runtime& rt, Value self, const Args& args) {
  const auto [needle, start, end] = bind("count()", args, {"sub", "start", "end"}, 1);
  const std::string_view text = required_str("count()", needle).text;
  rt.step_bytes(self.str->text.size() * 2);
  const Window part = window(*self.str, start, end);
  if (part.beyond) return int_value(0);
  if (text.empty()) return int_value(count_chars(part.text) + 1);
  int64_t n_found = 0;
  for (size_t pos = part.text.find(text); pos != std::string_view::npos;
       pos = part.text.find(text, pos + text.size())) {
    ++n_found;
  }
  return int_value(n_found);
}

// Every character is such, and there is one.
template <bool (*kTest)(int32_t)>
Value all_method(Runtime& rt, Value self, const Args& args) {
  bind_none("a character test", args);
  rt.step_bytes(self.str->text.size());
  Char c;
  for (CharReader reader(*self.str); reader.next(c);) {
    if (!kTest(c.code)) return bool_value(false);
  }
  return bool_value(!self.str->text.empty());
}

bool is_alnum(int32_t code) {
  return is_alpha(code) || is_numeric(code);
}

// At least one letter of the wanted case and none of another.
template <bool kUpper>
Value cased_method(Runtime& rt, Value self, const Args& args) {
  bind_none("a case test", args);
  rt.step_bytes(self.str->text.size());
  bool any = false;
  Char c;
  for (CharReader reader(*self.str); reader.next(c);) {
    if (is_title(c.code) || (kUpper ? is_lower(c.code) : is_upper(c.code))) {
      return bool_value(false);
    }
    any |= kUpper ? is_upper(c.code) : is_lower(c.code);
  }
  return bool_value(any);
}

Value istitle_method(Runtime& rt, Value self, const Args& args) {
  bind_none("istitle()", args);
  rt.step_bytes(self.str->text.size());
  bool any = false;
  bool after_cased = false;
  Char c;
  for (CharReader reader(*self.str); reader.next(c);) {
    const bool starts = is_upper(c.code) || is_title(c.code);
    if ((starts && after_cased) || (is_lower(c.code) && !after_cased)) return bool_value(false);
    after_cased = is_cased(c.code);
    any |= after_cased;
  }
  return bool_value(any);
}

Value isascii_method(Runtime&, Value self, const Args& args) {
  bind_none("isascii()", args);
  const std::string_view text = self.str->text;
  return bool_value(std::all_of(text.begin(), text.end(),
                                [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

constexpr Builtin kSearchMethods[] = {
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"find", find_method_of<false, false>},
    {"rfind", find_method_of<true, false>},
    {"index", find_method_of<false, true>},
    {"rindex", find_method_of<true, true>},
    {"count", count_text_method},
    {"isalpha", all_method<is_alpha>},
    {"isalnum", all_method<is_alnum>},
    {"isdigit", all_method<is_digit>},
    {"isdecimal", all_method<is_decimal>},
    {"isnumeric", all_method<is_numeric>},
    {"isspace", all_method<is_space>},
    {"isupper", cased_method<true>},
    {"islower", cased_method<false>},
    {"istitle", istitle_method},
    {"isascii", isascii_method},
    {"isidentifier", nullptr},
    {"isprintable", nullptr},
};

}  // namespace

std::span<const Builtin> text_search_methods() {
  return kSearchMethods;
}

}  // namespace apr::jinja
