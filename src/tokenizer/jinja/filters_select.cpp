// Filters that apply another filter or test to each item: map, select, reject, attr.
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

// What a select or map applies: a builtin found by the name in args[name_idx], the rest its
// arguments.
struct Applied {
  const Builtin* builtin = nullptr;  // null: the value itself
  Args args;
  Value operator()(Runtime& rt, const Value& value) const {
    rt.step();
    return builtin == nullptr ? value : builtin->apply(rt, value, args);
  }
};

Applied applied(const Args& args, size_t name_idx, const Builtin* (*find)(std::string_view),
                const char* what) {
  if (name_idx >= args.positional.size()) return {};
  const Value& name = args.positional[name_idx];
  if (!name.is(Type::kString)) fail("the name of a {} must be a string", what);
  Applied result{find(name.str->text), {args.positional.subspan(name_idx + 1), args.named}};
  if (result.builtin == nullptr) fail("unknown {} '{}'", what, name.str->text);
  return result;
}

// Jinja walks nothing where the value is false, whatever it is.
std::span<const Value> items_of(Runtime& rt, const Value& value) {
  if (!truthy(value)) return {};
  return iterate(rt, value);
}

Value map_filter(Runtime& rt, Value self, const Args& args) {
  List* result = make_list(rt, ListKind::kGenerator, 0, is_from_input(self));
  if (args.positional.empty()) {
    const auto [attribute, fallback] = bind("map", args, {"attribute", "default"}, 1);
    for (const Value& item : items_of(rt, self)) {
      rt.step();
      Value value = get_path(rt, item, attribute);
      const bool use_fallback =
          value.is(Type::kUndefined) && !fallback.missing() && !fallback.is(Type::kNone);
      push(rt, *result, use_fallback ? fallback : value);
    }
    return list_value(result);
  }
  const Applied apply = applied(args, 0, find_filter, "filter");
  for (const Value& item : items_of(rt, self)) push(rt, *result, apply(rt, item));
  return list_value(result);
}

template <bool kKeep, bool kByAttribute>
Value select_filter(Runtime& rt, Value self, const Args& args) {
  if (kByAttribute && args.positional.empty()) fail("Missing parameter for attribute name");
  const Applied apply = applied(args, kByAttribute ? 1 : 0, find_test, "test");
  List* result = make_list(rt, ListKind::kGenerator, 0, is_from_input(self));
  for (const Value& item : items_of(rt, self)) {
    const Value tested = kByAttribute ? get_path(rt, item, args.positional[0]) : item;
    if (truthy(apply(rt, tested)) == kKeep) push(rt, *result, item);
  }
  return list_value(result);
}

Value attr_filter(Runtime& rt, Value self, const Args& args) {
  const auto [name] = bind("attr", args, {"name"}, 1);
  require_defined(self);
  const Str& attr = required_str("attr", name);
  // Unlike `a.b`, a key of a mapping does not count.
  if (self.is(Type::kDict) && find_method(self, attr.text) == nullptr) {
    return make_undefined_key(rt, self, name);
  }
  return get_attr(rt, self, attr);
}

constexpr Builtin kSelectFilters[] = {
    {"map", map_filter},
    {"select", select_filter<true, false>},
    {"reject", select_filter<false, false>},
    {"selectattr", select_filter<true, true>},
    {"rejectattr", select_filter<false, true>},
    {"attr", attr_filter},
};

}  // namespace

std::span<const Builtin> select_filters() {
  return kSelectFilters;
}

}  // namespace apr::jinja
