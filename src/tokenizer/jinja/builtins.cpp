// Arguments of builtins, the tests, the functions, and the search by name.
#include "tokenizer/jinja/builtins.h"

#include <algorithm>

#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

void bind_args(std::string_view what, const Args& args, std::span<const std::string_view> names,
               size_t n_required, std::span<Value> out) {
  if (args.positional.size() > names.size()) {
    fail("{} takes at most {} argument(s), {} given", what, names.size(), args.positional.size());
  }
  std::copy(args.positional.begin(), args.positional.end(), out.begin());
  for (const NamedArg& arg : args.named) {
    const auto it = std::find(names.begin(), names.end(), arg.name);
    if (it == names.end()) fail("{} got an unexpected keyword argument '{}'", what, arg.name);
    Value& value = out[static_cast<size_t>(it - names.begin())];
    if (!value.missing()) fail("{} got multiple values for argument '{}'", what, arg.name);
    value = arg.value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (out[i].missing()) fail("{} misses its argument '{}'", what, names[i]);
  }
}

void bind_none(std::string_view what, const Args& args) {
  if (!args.positional.empty() || !args.named.empty()) fail("{} takes no arguments", what);
}

int64_t int_arg(const Value& value, int64_t fallback) {
  if (value.missing() || value.is(Type::kNone)) return fallback;
  require_defined(value);
  if (!value.is_int_like()) {
    fail("'{}' object cannot be interpreted as an integer", type_name(value));
  }
  return value.as_int();
}

bool bool_arg(const Value& value, bool fallback) {
  return value.missing() ? fallback : truthy(value);
}

const Str* str_arg(std::string_view what, const Value& value) {
  if (value.missing() || value.is(Type::kNone)) return nullptr;
  return &required_str(what, value);
}

const Str& required_str(std::string_view what, const Value& value) {
  require_defined(value);
  if (!value.is(Type::kString)) fail("{} needs a str, not {}", what, type_name(value));
  return *value.str;
}

namespace {

Value test_remainder(Runtime& rt, const Value& value, const Value& divisor, double remainder) {
  const Value mod = arithmetic(rt, Op::kMod, value, divisor);
  return bool_value(mod.is_number() && mod.as_float() == remainder);
}

template <bool (*kTest)(const Value&)>
Value simple_test(Runtime&, Value self, const Args& args) {
  bind_none("a test", args);
  return bool_value(kTest(self));
}

bool is_sequence(const Value& v) {
  return v.is(Type::kString) || v.is(Type::kDict) || v.is(Type::kUndefined) ||
         (v.is(Type::kList) &&
          (v.list->kind == ListKind::kList || v.list->kind == ListKind::kTuple ||
           v.list->kind == ListKind::kRange));
}

bool is_iterable(const Value& v) {
  return v.is(Type::kString) || v.is(Type::kDict) || v.is(Type::kUndefined) || v.is(Type::kList) ||
         v.is(Type::kLoop);
}

bool is_callable(const Value& v) {
  return v.is(Type::kCallable) || v.is(Type::kMacro) || v.is(Type::kUndefined) || v.is(Type::kLoop);
}

template <bool (*kCharTest)(int32_t)>
bool all_cased(Runtime& rt, const Value& value, bool (*other)(int32_t)) {
  bool any = false;
  const Str& str = to_text(rt, value);
  rt.step_bytes(str.text.size());
  Char c;
  for (CharReader reader(str); reader.next(c);) {
    if (other(c.code) || is_title(c.code)) return false;
    any |= kCharTest(c.code);
  }
  return any;
}

template <Op kOp>
Value compare_test(Runtime& rt, Value self, const Args& args) {
  const auto [other] = bind("a comparison test", args, {"other"}, 1);
  switch (kOp) {
    case Op::kEq:
      return bool_value(equal(rt, self, other));
    case Op::kNe:
      return bool_value(!equal(rt, self, other));
    case Op::kLt:
      return bool_value(order(rt, self, other, "<") < 0);
    case Op::kLe:
      return bool_value(order(rt, self, other, "<=") <= 0);
    case Op::kGt:
      return bool_value(order(rt, self, other, ">") > 0);
    default:
      return bool_value(order(rt, self, other, ">=") >= 0);
  }
}

// Python's `is`: equal scalars of one type, the same container.
bool same_object(const Value& a, const Value& b) {
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kBool:
      return a.boolean == b.boolean;
    case Type::kInt:
      return a.integer == b.integer;
    case Type::kFloat:
      return a.real == b.real;
    case Type::kString:
      return a.str->text == b.str->text;
    case Type::kNone:
      return true;
    case Type::kList:
      return a.list == b.list;
    default:
      return a.dict == b.dict;
  }
}

constexpr Builtin kTests[] = {
    {"odd",
     [](Runtime& rt, Value v, const Args&) { return test_remainder(rt, v, int_value(2), 1); }},
    {"even",
     [](Runtime& rt, Value v, const Args&) { return test_remainder(rt, v, int_value(2), 0); }},
    {"divisibleby",
     [](Runtime& rt, Value v, const Args& args) {
       return test_remainder(rt, v, bind("divisibleby", args, {"num"}, 1)[0], 0);
     }},
    {"defined", simple_test<[](const Value& v) { return !v.is(Type::kUndefined); }>},
    {"undefined", simple_test<[](const Value& v) { return v.is(Type::kUndefined); }>},
    {"none", simple_test<[](const Value& v) { return v.is(Type::kNone); }>},
    {"boolean", simple_test<[](const Value& v) { return v.is(Type::kBool); }>},
    {"true", simple_test<[](const Value& v) { return v.is(Type::kBool) && v.boolean; }>},
    {"false", simple_test<[](const Value& v) { return v.is(Type::kBool) && !v.boolean; }>},
    {"integer", simple_test<[](const Value& v) { return v.is(Type::kInt); }>},
    {"float", simple_test<[](const Value& v) { return v.is(Type::kFloat); }>},
    {"number", simple_test<[](const Value& v) { return v.is_number(); }>},
    {"string", simple_test<[](const Value& v) { return v.is(Type::kString); }>},
    {"mapping", simple_test<[](const Value& v) { return v.is(Type::kDict); }>},
    {"sequence", simple_test<is_sequence>},
    {"iterable", simple_test<is_iterable>},
    {"callable", simple_test<is_callable>},
    {"lower", [](Runtime& rt, Value v,
                 const Args&) { return bool_value(all_cased<is_lower>(rt, v, is_upper)); }},
    {"upper", [](Runtime& rt, Value v,
                 const Args&) { return bool_value(all_cased<is_upper>(rt, v, is_lower)); }},
    {"sameas",
     [](Runtime&, Value v, const Args& args) {
       return bool_value(same_object(v, bind("sameas", args, {"other"}, 1)[0]));
     }},
    {"in",
     [](Runtime& rt, Value v, const Args& args) {
       return bool_value(contains(rt, bind("in", args, {"seq"}, 1)[0], v));
     }},
    {"filter",
     [](Runtime&, Value v, const Args&) {
       return bool_value(v.is(Type::kString) && find_filter(v.str->text) != nullptr);
     }},
    {"test",
     [](Runtime&, Value v, const Args&) {
       return bool_value(v.is(Type::kString) && find_test(v.str->text) != nullptr);
     }},
    {"==", compare_test<Op::kEq>},
    {"eq", compare_test<Op::kEq>},
    {"equalto", compare_test<Op::kEq>},
    {"!=", compare_test<Op::kNe>},
    {"ne", compare_test<Op::kNe>},
    {">", compare_test<Op::kGt>},
    {"gt", compare_test<Op::kGt>},
    {"greaterthan", compare_test<Op::kGt>},
    {">=", compare_test<Op::kGe>},
    {"ge", compare_test<Op::kGe>},
    {"<", compare_test<Op::kLt>},
    {"lt", compare_test<Op::kLt>},
    {"lessthan", compare_test<Op::kLt>},
    {"<=", compare_test<Op::kLe>},
    {"le", compare_test<Op::kLe>},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  return find_in(kTests, name);
}

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), list_filters(), select_filters(), number_filters()}) {
    if (const Builtin* filter = find_in(table, name)) return filter;
  }
  return nullptr;
}

const Builtin* find_method(const Value& object, std::string_view name) {
  switch (object.type) {
    case Type::kString:
      if (const Builtin* method = find_in(text_methods(), name)) return method;
      return find_in(text_search_methods(), name);
    case Type::kDict:
      return find_in(dict_methods(), name);
    case Type::kList:
      if (object.list->kind == ListKind::kList) return find_in(list_methods(), name);
      if (object.list->kind == ListKind::kTuple || object.list->kind == ListKind::kRange) {
        return find_in(tuple_methods(), name);
      }
      return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace apr::jinja
