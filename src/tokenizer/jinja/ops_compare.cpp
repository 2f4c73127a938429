// Names of types, truth, equality, order and membership.
#include <algorithm>

#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

std::string_view type_name(const Value& value) {
  switch (value.type) {
    case Type::kMissing:
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return "str";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "Namespace";
    case Type::kCallable:
      return "builtin_function_or_method";
    case Type::kMacro:
      return "Macro";
    case Type::kLoop:
      return "LoopContext";
    case Type::kList:
      break;
  }
  switch (value.list->kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kKeys:
      return "dict_keys";
    case ListKind::kValues:
      return "dict_values";
    case ListKind::kItems:
      return "dict_items";
    case ListKind::kGenerator:
      break;
  }
  return "generator";
}

std::string object_name(const Value& value) {
  switch (value.type) {
    case Type::kNone:
      return "None";
    case Type::kNamespace:
      return "jinja2.utils.Namespace object";
    case Type::kMacro:
      return "jinja2.runtime.Macro object";
    case Type::kLoop:
      return "jinja2.runtime.LoopContext object";
    default:
      return fmt::format("{} object", type_name(value));
  }
}

bool truthy(const Value& value) {
  switch (value.type) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
      return value.boolean;
    case Type::kInt:
      return value.integer != 0;
    case Type::kFloat:
      return value.real != 0;
    case Type::kString:
      return !value.str->text.empty();
    case Type::kList:
      return value.list->kind == ListKind::kGenerator || value.list->size > 0;
    case Type::kDict:
      return value.dict->size > 0;
    case Type::kNamespace:
    case Type::kCallable:
    case Type::kMacro:
    case Type::kLoop:
      return true;
  }
  return false;
}

namespace {

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_int_like() && b.is_int_like()) return a.as_int() <=> b.as_int();
  // 64 bits of mantissa hold every integer and every float of ours exactly.
  static_assert(std::numeric_limits<long double>::digits >= 64);
  const auto wide = [](const Value& v) {
    return v.is(Type::kFloat) ? static_cast<long double>(v.real)
                              : static_cast<long double>(v.as_int());
  };
  return wide(a) <=> wide(b);
}

// Only lists and tuples compare item by item with their own kind.
bool comparable_lists(const Value& a, const Value& b) {
  return a.is(Type::kList) && b.is(Type::kList) && a.list->kind == b.list->kind &&
         (a.list->kind == ListKind::kList || a.list->kind == ListKind::kTuple ||
          a.list->kind == ListKind::kRange);
}

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b) {
  if (a.size != b.size) return false;
  for (const Entry& entry : a.span()) {
    const Entry* other = find_entry(rt, b, entry.key);
    if (other == nullptr || !equal(rt, entry.value, other->value)) return false;
  }
  return true;
}

}  // namespace

bool equal(Runtime& rt, const Value& a, const Value& b) {
  const DepthGuard depth(rt);
  rt.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      if (a.str->text.size() == b.str->text.size()) rt.step_bytes(a.str->text.size());
      return a.str->text == b.str->text;
    case Type::kList:
      if (a.list == b.list) return true;
      return comparable_lists(a, b) && a.list->size == b.list->size &&
             std::equal(a.list->span().begin(), a.list->span().end(), b.list->span().begin(),
                        [&](const Value& x, const Value& y) { return equal(rt, x, y); });
    case Type::kDict:
      return a.dict == b.dict || equal_dicts(rt, *a.dict, *b.dict);
    case Type::kNamespace:
      return a.dict == b.dict;
    case Type::kCallable:
      return a.callable->builtin == b.callable->builtin &&
             equal(rt, a.callable->self, b.callable->self);
    case Type::kMacro:
      return a.macro == b.macro;
    case Type::kLoop:
      return a.loop == b.loop;
    default:
      return false;
  }
}

std::partial_ordering order(Runtime& rt, const Value& a, const Value& b, const char* op) {
  const DepthGuard depth(rt);
  rt.step();
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is(Type::kString) && b.is(Type::kString)) {
    // UTF-8 sorts by bytes as by code points.
    rt.step_bytes(std::min(a.str->text.size(), b.str->text.size()));
    return a.str->text.compare(b.str->text) <=> 0;
  }
  if (!comparable_lists(a, b) || a.list->kind == ListKind::kRange) {
    fail("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
  }
  const size_t n_common = std::min(a.list->size, b.list->size);
  for (size_t i = 0; i < n_common; ++i) {
    if (!equal(rt, a.list->items[i], b.list->items[i])) {
      return order(rt, a.list->items[i], b.list->items[i], op);
    }
  }
  return a.list->size <=> b.list->size;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is(Type::kString)) {
    if (!item.is(Type::kString)) {
      fail("'in <string>' requires string as left operand, not {}", type_name(item));
    }
    rt.step_bytes(container.str->text.size());
    return container.str->text.find(item.str->text) != std::string_view::npos;
  }
  if (container.is(Type::kDict)) return find_entry(rt, *container.dict, item) != nullptr;
  if (container.is(Type::kUndefined)) return false;
  if (!container.is(Type::kList)) {
    fail("argument of type '{}' is not iterable", type_name(container));
  }
  List& list = *container.list;
  const bool is_generator = list.kind == ListKind::kGenerator;
  for (size_t i = is_generator ? list.cursor : 0; i < list.size; ++i) {
    if (is_generator) list.cursor = i + 1;
    if (equal(rt, list.items[i], item)) return true;
  }
  return false;
}

}  // namespace apr::jinja
