// Values of a template: small tagged handles to objects of an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace apr::jinja {

class Runtime;
struct Stmt;
struct Scope;
struct Loop;
struct Value;

// Bytes [end of the run before, end_bytes) of a string were written by the template, or came from
// the input.
struct Run {
  size_t end_bytes = 0;
  bool from_template = false;
};

enum class Origin : uint8_t { kInput, kTemplate, kMixed };

// An immutable string; bytes are UTF-8 wherever the input is.
struct Str {
  std::string_view text;
  std::span<const Run> runs;  // empty unless kMixed
  Origin origin = Origin::kTemplate;
};

// kMissing: an argument that was not given; no expression has this type.
enum class Type : uint8_t {
  kMissing,
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kCallable,
  kMacro,
  kLoop
};

struct List;
struct Dict;
struct Undefined;
struct Callable;
struct Macro;

struct Value {
  Type type = Type::kMissing;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const Str* str;
    List* list;
    Dict* dict;  // kDict and kNamespace
    const Undefined* undefined;
    const Callable* callable;
    const Macro* macro;
    Loop* loop;
  };
  Value() : integer(0) {}

  bool is(Type t) const { return type == t; }
  bool missing() const { return type == Type::kMissing; }
  bool is_int_like() const { return type == Type::kInt || type == Type::kBool; }
  bool is_number() const { return is_int_like() || type == Type::kFloat; }
  int64_t as_int() const { return type == Type::kBool ? (boolean ? 1 : 0) : integer; }
  double as_float() const { return type == Type::kFloat ? real : static_cast<double>(as_int()); }
};

// What Python would hold: a generator can be walked once, is true and has no length.
enum class ListKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

struct RangeBounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

struct List {
  Value* items = nullptr;
  size_t size = 0;
  size_t capacity = 0;
  size_t cursor = 0;  // of a generator: items before it are used up
  ListKind kind = ListKind::kList;
  bool from_input = false;
  const RangeBounds* range = nullptr;  // of a kRange
  std::span<const Value> span() const { return {items, size}; }
};

struct Entry {
  Value key;
  Value value;
};

// Insertion order, unique keys.
struct Dict {
  Entry* entries = nullptr;
  size_t size = 0;
  size_t capacity = 0;
  bool from_input = false;
  std::span<Entry> span() const { return {entries, size}; }
};

// Why a value is undefined: a hint, or `key` looked up in `object`, or (object missing) a name.
struct Undefined {
  std::string_view hint;
  Value object;
  Value key;
};

struct NamedArg {
  std::string_view name;
  Value value;
};

struct Args {
  std::span<const Value> positional;
  std::span<const NamedArg> named;
};

// A filter, test, method or function: `self` is what it is applied to.
struct Builtin {
  const char* name;
  Value (*apply)(Runtime& rt, Value self, const Args& args);  // null: known, not supported
};

struct Callable {
  Value self;
  const Builtin* builtin = nullptr;
};

struct Macro {
  const Stmt* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined
};

inline Value none_value() {
  Value v;
  v.type = Type::kNone;
  return v;
}
inline Value bool_value(bool b) {
  Value v;
  v.type = Type::kBool;
  v.boolean = b;
  return v;
}
inline Value int_value(int64_t i) {
  Value v;
  v.type = Type::kInt;
  v.integer = i;
  return v;
}
inline Value float_value(double d) {
  Value v;
  v.type = Type::kFloat;
  v.real = d;
  return v;
}
inline Value str_value(const Str* s) {
  Value v;
  v.type = Type::kString;
  v.str = s;
  return v;
}
inline Value list_value(List* l) {
  Value v;
  v.type = Type::kList;
  v.list = l;
  return v;
}
inline Value dict_value(Dict* d) {
  Value v;
  v.type = Type::kDict;
  v.dict = d;
  return v;
}

}  // namespace apr::jinja
