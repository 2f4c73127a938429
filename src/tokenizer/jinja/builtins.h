// The filters, tests, methods and functions a template may use, by name.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "tokenizer/jinja/runtime.h"

namespace apr::jinja {

// Null when there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
// The method `name` of the type of `object` in Python; its `apply` is null where it is not
// supported here.
const Builtin* find_method(const Value& object, std::string_view name);

// The tables behind them, one per file.
std::span<const Builtin> text_filters();
std::span<const Builtin> list_filters();
std::span<const Builtin> select_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> text_methods();
std::span<const Builtin> text_search_methods();
std::span<const Builtin> list_methods();
std::span<const Builtin> tuple_methods();
std::span<const Builtin> dict_methods();

inline const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& row : table) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// Orders `args` by the parameters `names`; what is not given is kMissing. Throws Fault, naming
// `what`, for too many or unknown arguments and when one of the first `n_required` is missing.
void bind_args(std::string_view what, const Args& args, std::span<const std::string_view> names,
               size_t n_required, std::span<Value> out);

template <size_t kSize>
std::array<Value, kSize> bind(std::string_view what, const Args& args,
                              const std::string_view (&names)[kSize], size_t n_required = 0) {
  std::array<Value, kSize> out;
  bind_args(what, args, names, n_required, out);
  return out;
}
// For what takes no arguments.
void bind_none(std::string_view what, const Args& args);

// An argument of a type, or `fallback` where it is missing (none too, for integers).
int64_t int_arg(const Value& value, int64_t fallback);
bool bool_arg(const Value& value, bool fallback);
// The string of an argument; null where it is missing or none. Throws Fault for another type.
const Str* str_arg(std::string_view what, const Value& value);
const Str& required_str(std::string_view what, const Value& value);

// str % value and str.format(args) of Python.
Value percent_format(Runtime& rt, const Str& format, const Value& value);
Value percent_format(Runtime& rt, const Str& format, const Args& args);
Value brace_format(Runtime& rt, const Str& format, const Args& args);

// Shared by filters and methods of one meaning.
Value replace_text(Runtime& rt, const Str& str, const Str& old, const Str& with, int64_t max_count);
Value center_text(Runtime& rt, const Str& str, int64_t width_chars, const Str& fill);
// Lines of str.splitlines().
List* split_lines(Runtime& rt, const Str& str, bool keep_ends);

}  // namespace apr::jinja
