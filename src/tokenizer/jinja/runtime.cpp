#include "tokenizer/jinja/runtime.h"

#include <algorithm>

#include "tokenizer/jinja/ops.h"

namespace apr::jinja {

Value make_str(Runtime& rt, std::string_view text, bool from_template) {
  return view_str(rt, rt.arena.copy_text(text), from_template);
}

Value view_str(Runtime& rt, std::string_view text, bool from_template) {
  return str_value(
      rt.arena.create(Str{text, {}, from_template ? Origin::kTemplate : Origin::kInput}));
}

List* make_list(Runtime& rt, ListKind kind, size_t capacity, bool from_input) {
  List list;
  list.items = capacity == 0 ? nullptr : rt.arena.create_array<Value>(capacity);
  list.capacity = capacity;
  list.kind = kind;
  list.from_input = from_input;
  return rt.arena.create(list);
}

void push(Runtime& rt, List& list, Value item) {
  if (list.size == list.capacity) {
    const size_t capacity = std::max<size_t>(4, list.capacity * 2);
    Value* items = rt.arena.create_array<Value>(capacity);
    std::copy(list.items, list.items + list.size, items);
    list.items = items;
    list.capacity = capacity;
  }
  list.items[list.size++] = item;
}

Value make_tuple(Runtime& rt, std::initializer_list<Value> items, bool from_input) {
  List* list = make_list(rt, ListKind::kTuple, items.size(), from_input);
  for (const Value& item : items) push(rt, *list, item);
  return list_value(list);
}

Dict* make_dict(Runtime& rt, size_t capacity, bool from_input) {
  Dict dict;
  dict.entries = capacity == 0 ? nullptr : rt.arena.create_array<Entry>(capacity);
  dict.capacity = capacity;
  dict.from_input = from_input;
  return rt.arena.create(dict);
}

namespace {

// A search is linear; this many entries are one step.
constexpr size_t kEntriesPerStep = 8;

void require_hashable(const Value& key) {
  const bool is_tuple = key.is(Type::kList) && key.list->kind == ListKind::kTuple;
  if (key.is(Type::kDict) || (key.is(Type::kList) && !is_tuple)) {
    fail("unhashable type: '{}'", type_name(key));
  }
}

}  // namespace

Entry* find_entry(Runtime& rt, const Dict& dict, std::string_view key) {
  rt.step(static_cast<int64_t>(dict.size / kEntriesPerStep));
  for (Entry& entry : dict.span()) {
    if (entry.key.is(Type::kString) && entry.key.str->text == key) return &entry;
  }
  return nullptr;
}

Entry* find_entry(Runtime& rt, const Dict& dict, const Value& key) {
  if (key.is(Type::kString)) return find_entry(rt, dict, key.str->text);
  require_hashable(key);
  rt.step(static_cast<int64_t>(dict.size / kEntriesPerStep));
  for (Entry& entry : dict.span()) {
    if (equal(rt, entry.key, key)) return &entry;
  }
  return nullptr;
}

void set_entry(Runtime& rt, Dict& dict, Value key, Value value) {
  if (Entry* entry = find_entry(rt, dict, key)) {
    entry->value = value;
    return;
  }
  if (dict.size == dict.capacity) {
    const size_t capacity = std::max<size_t>(4, dict.capacity * 2);
    Entry* entries = rt.arena.create_array<Entry>(capacity);
    std::copy(dict.entries, dict.entries + dict.size, entries);
    dict.entries = entries;
    dict.capacity = capacity;
  }
  dict.entries[dict.size++] = Entry{key, value};
}

namespace {
Value make_undefined(Runtime& rt, const Undefined& undefined) {
  Value v;
  v.type = Type::kUndefined;
  v.undefined = rt.arena.create(undefined);
  return v;
}
}  // namespace

Value make_undefined_name(Runtime& rt, std::string_view name) {
  return make_undefined(rt, Undefined{{}, {}, view_str(rt, name, true)});
}

Value make_undefined_key(Runtime& rt, Value object, Value key) {
  return make_undefined(rt, Undefined{{}, object, key});
}

Value make_undefined_hint(Runtime& rt, std::string_view hint) {
  return make_undefined(rt, Undefined{rt.arena.copy_text(hint), {}, {}});
}

Value make_callable(Runtime& rt, Value self, const Builtin& builtin) {
  Value v;
  v.type = Type::kCallable;
  v.callable = rt.arena.create(Callable{self, &builtin});
  return v;
}

std::string undefined_message(const Undefined& undefined) {
  if (!undefined.hint.empty()) return std::string(undefined.hint);
  const std::string key = short_repr(undefined.key);
  if (undefined.object.missing()) return fmt::format("{} is undefined", key);
  const std::string object = object_name(undefined.object);
  return undefined.key.is(Type::kString) ? fmt::format("'{}' has no attribute {}", object, key)
                                         : fmt::format("{} has no element {}", object, key);
}

void require_defined(const Value& value) {
  if (value.is(Type::kUndefined)) throw Fault(undefined_message(*value.undefined));
}

bool is_from_input(const Value& value) {
  switch (value.type) {
    case Type::kString:
      return value.str->origin != Origin::kTemplate;
    case Type::kList:
      return value.list->from_input;
    case Type::kDict:
      return value.dict->from_input;
    default:
      return false;
  }
}

}  // namespace apr::jinja
