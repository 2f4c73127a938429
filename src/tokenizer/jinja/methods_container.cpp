// Methods of lists, tuples and dicts. The changing ones that transformers' sandbox refuses and
// some templates use nevertheless (append, extend, insert, pop, update, setdefault) are allowed:
// all values of a rendering are its own.
#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"

namespace apr::jinja {

namespace {

template <ListKind kKind>
Value view_method(Runtime& rt, Value self, const Args& args) {
  bind_none("a view of a dict", args);
  const Dict& dict = *self.dict;
  List* list = make_list(rt, kKind, dict.size, dict.from_input);
  for (const Entry& entry : dict.span()) {
    rt.step();
    push(rt, *list,
         kKind == ListKind::kKeys     ? entry.key
         : kKind == ListKind::kValues ? entry.value
                                      : make_tuple(rt, {entry.key, entry.value}, dict.from_input));
  }
  return list_value(list);
}

Value get_method(Runtime& rt, Value self, const Args& args) {
  const auto [key, fallback] = bind("get()", args, {"key", "default"}, 1);
  if (const Entry* entry = find_entry(rt, *self.dict, key)) return entry->value;
  return fallback.missing() ? none_value() : fallback;
}

Value copy_dict_method(Runtime& rt, Value self, const Args& args) {
  bind_none("copy()", args);
  Dict* copy = make_dict(rt, self.dict->size, self.dict->from_input);
  rt.step(static_cast<int64_t>(self.dict->size / 8));
  std::copy(self.dict->span().begin(), self.dict->span().end(), copy->entries);
  copy->size = self.dict->size;
  return dict_value(copy);
}

Value update_method(Runtime& rt, Value self, const Args& args) {
  const Builtin& to_dict = *find_function("dict");
  const Value source = to_dict.apply(rt, none_value(), args);
  self.dict->from_input |= source.dict->from_input;
  for (const Entry& entry : source.dict->span()) set_entry(rt, *self.dict, entry.key, entry.value);
  return none_value();
}

Value setdefault_method(Runtime& rt, Value self, const Args& args) {
  const auto [key, fallback] = bind("setdefault()", args, {"key", "default"}, 1);
  if (const Entry* entry = find_entry(rt, *self.dict, key)) return entry->value;
  const Value value = fallback.missing() ? none_value() : fallback;
  set_entry(rt, *self.dict, key, value);
  return value;
}

Value pop_dict_method(Runtime& rt, Value self, const Args& args) {
  const auto [key, fallback] = bind("pop()", args, {"key", "default"}, 1);
  Entry* entry = find_entry(rt, *self.dict, key);
  if (entry == nullptr) {
    if (fallback.missing()) fail("pop(): no key {}", short_repr(key));
    return fallback;
  }
  const Value value = entry->value;
  std::copy(entry + 1, self.dict->entries + self.dict->size, entry);
  --self.dict->size;
  return value;
}

constexpr Builtin kDictMethods[] = {
    {"items", view_method<ListKind::kItems>},
    {"keys", view_method<ListKind::kKeys>},
    {"values", view_method<ListKind::kValues>},
    {"get", get_method},
    {"copy", copy_dict_method},
    {"update", update_method},
    {"setdefault", setdefault_method},
    {"pop", pop_dict_method},
    {"popitem", nullptr},
    {"clear", nullptr},
    {"fromkeys", nullptr},
};

Value append_method(Runtime& rt, Value self, const Args& args) {
  push(rt, *self.list, bind("append()", args, {"object"}, 1)[0]);
  return none_value();
}

Value extend_method(Runtime& rt, Value self, const Args& args) {
  const auto [items] = bind("extend()", args, {"iterable"}, 1);
  require_defined(items);
  for (const Value& item : iterate(rt, items)) {
    rt.step();
    push(rt, *self.list, item);
  }
  return none_value();
}

Value insert_method(Runtime& rt, Value self, const Args& args) {
  const auto [idx_arg, item] = bind("insert()", args, {"index", "object"}, 2);
  List& list = *self.list;
  const auto size = static_cast<int64_t>(list.size);
  int64_t idx = int_arg(idx_arg, 0);
  if (idx < 0) idx += size;
  push(rt, list, item);
  rt.step(size / 8);
  std::rotate(list.items + std::clamp<int64_t>(idx, 0, size), list.items + size,
              list.items + size + 1);
  return none_value();
}

Value pop_list_method(Runtime& rt, Value self, const Args& args) {
  const auto [idx_arg] = bind("pop()", args, {"index"});
  List& list = *self.list;
  const auto size = static_cast<int64_t>(list.size);
  int64_t idx = int_arg(idx_arg, -1);
  if (idx < 0) idx += size;
  if (idx < 0 || idx >= size) fail("pop index out of range");
  const Value item = list.items[idx];
  rt.step(size / 8);
  std::copy(list.items + idx + 1, list.items + size, list.items + idx);
  --list.size;
  return item;
}

Value index_method(Runtime& rt, Value self, const Args& args) {
  const auto [item] = bind("index()", args, {"value"}, 1);
  for (size_t i = 0; i < self.list->size; ++i) {
    if (equal(rt, self.list->items[i], item)) return int_value(static_cast<int64_t>(i));
  }
  fail("{} is not in the {}", short_repr(item), type_name(self));
}

Value count_item_method(Runtime& rt, Value self, const Args& args) {
  const auto [item] = bind("count()", args, {"value"}, 1);
  int64_t n_found = 0;
  for (const Value& other : self.list->span()) n_found += equal(rt, other, item) ? 1 : 0;
  return int_value(n_found);
}

Value copy_list_method(Runtime& rt, Value self, const Args& args) {
  bind_none("copy()", args);
  return get_slice(rt, self, none_value(), none_value(), none_value());
}

constexpr Builtin kListMethods[] = {
    {"append", append_method},  {"extend", extend_method}, {"insert", insert_method},
    {"pop", pop_list_method},   {"index", index_method},   {"count", count_item_method},
    {"copy", copy_list_method}, {"remove", nullptr},       {"reverse", nullptr},
    {"sort", nullptr},          {"clear", nullptr},
};

constexpr Builtin kTupleMethods[] = {
    {"index", index_method},
    {"count", count_item_method},
};

}  // namespace

std::span<const Builtin> list_methods() {
  return kListMethods;
}
std::span<const Builtin> tuple_methods() {
  return kTupleMethods;
}
std::span<const Builtin> dict_methods() {
  return kDictMethods;
}

}  // namespace apr::jinja
