// What Python's operators do to values, as Jinja's sandbox lets a template use them.
#pragma once

#include <compare>
#include <optional>
#include <string>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/runtime.h"

namespace apr::jinja {

// Python's name of the type: "str", "list", "NoneType".
std::string_view type_name(const Value& value);
// As Jinja's messages name an object: "dict object", "None".
std::string object_name(const Value& value);
// repr() of a key in a message, cut when long; "..." for containers.
std::string short_repr(const Value& value);

bool truthy(const Value& value);
bool equal(Runtime& rt, const Value& a, const Value& b);
// Order of numbers, strings, lists and tuples; throws Fault for others, naming `op` ("<").
std::partial_ordering order(Runtime& rt, const Value& a, const Value& b, const char* op);
bool contains(Runtime& rt, const Value& container, const Value& item);

Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b);
Value negate(const Value& value, bool minus);

// `object.name` (methods first) and `object[key]` (items first); undefined when there is none.
// Loops are not known here.
Value get_attr(Runtime& rt, const Value& object, const Str& name);
Value get_item(Runtime& rt, const Value& object, const Value& key);
// `object[start:stop:step]` of strings, lists and tuples; none and missing mean "not given".
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                const Value& step);
// Attribute path of filters, "a.b.0", or an integer.
Value get_path(Runtime& rt, Value object, const Value& path);

// The items a `for` walks; a generator is used up by it. Throws Fault for what cannot be walked.
std::span<const Value> iterate(Runtime& rt, const Value& value);
std::optional<int64_t> find_length(const Value& value);
int64_t length(const Value& value);

// str(value), with what came from the input marked.
const Str& to_text(Runtime& rt, const Value& value);
// repr() of a float, as Python and JSON write it.
std::string float_text(double value);
// json.dumps of Python. `indent` null: on one line.
struct JsonStyle {
  const std::string* indent = nullptr;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
Value to_json(Runtime& rt, const Value& value, const JsonStyle& style);

// Python's int(text, base) and float(text); nothing when the text is not a number.
std::optional<int64_t> parse_int(std::string_view text, int64_t base);
std::optional<double> parse_float(std::string_view text);

}  // namespace apr::jinja
