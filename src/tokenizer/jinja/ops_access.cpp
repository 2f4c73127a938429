// Attributes, items, slices and iteration.
#include <algorithm>
#include <charconv>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

// Lists, tuples and ranges have items by index; views and generators do not.
bool is_indexable(const Value& value) {
  return value.is(Type::kList) &&
         (value.list->kind == ListKind::kList || value.list->kind == ListKind::kTuple ||
          value.list->kind == ListKind::kRange);
}

std::optional<Value> find_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is(Type::kDict)) {
    if (key.is(Type::kDict) || (key.is(Type::kList) && key.list->kind == ListKind::kList)) {
      return std::nullopt;
    }
    if (const Entry* entry = find_entry(rt, *object.dict, key)) return entry->value;
    return std::nullopt;
  }
  if (!key.is_int_like()) return std::nullopt;
  int64_t idx = key.as_int();
  if (is_indexable(object)) {
    const auto size = static_cast<int64_t>(object.list->size);
    if (idx < 0) idx += size;
    if (idx < 0 || idx >= size) return std::nullopt;
    return object.list->items[idx];
  }
  if (object.is(Type::kString)) {
    const std::string_view text = object.str->text;
    rt.step_bytes(text.size());
    if (idx < 0) idx += count_chars(text);
    if (idx < 0) return std::nullopt;
    const size_t pos = byte_of_char(text, idx);
    if (pos >= text.size()) return std::nullopt;
    return slice_value(rt, *object.str, pos, char_at(text, pos).size_bytes);
  }
  return std::nullopt;
}

std::optional<Value> find_attr(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is(Type::kNamespace)) {
    if (const Entry* entry = find_entry(rt, *object.dict, name)) return entry->value;
    return std::nullopt;
  }
  if (object.is(Type::kMacro) || object.is(Type::kLoop)) return std::nullopt;
  if (const Builtin* method = find_method(object, name)) {
    return make_callable(rt, object, *method);
  }
  return std::nullopt;
}

}  // namespace

Value get_attr(Runtime& rt, const Value& object, const Str& name) {
  require_defined(object);
  if (const auto attr = find_attr(rt, object, name.text)) return *attr;
  if (object.is(Type::kDict)) {
    if (const Entry* entry = find_entry(rt, *object.dict, name.text)) return entry->value;
  }
  return make_undefined_key(rt, object, str_value(&name));
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  require_defined(object);
  if (const auto item = find_item(rt, object, key)) return *item;
  if (key.is(Type::kString)) {
    if (const auto attr = find_attr(rt, object, key.str->text)) return *attr;
  }
  return make_undefined_key(rt, object, key);
}

Value get_path(Runtime& rt, Value object, const Value& path) {
  if (path.missing() || path.is(Type::kNone)) return object;
  if (!path.is(Type::kString)) return get_item(rt, object, path);
  const Str& text = *path.str;
  for (size_t begin = 0; begin <= text.text.size();) {
    const size_t end = std::min(text.text.find('.', begin), text.text.size());
    const std::string_view part = text.text.substr(begin, end - begin);
    Value key = slice_value(rt, text, begin, part.size());
    const bool is_index =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_index) {
      int64_t idx = 0;
      const auto [ptr, error] = std::from_chars(part.data(), part.data() + part.size(), idx);
      if (error != std::errc()) fail("attribute '{}' does not fit 64 bits", part.substr(0, 40));
      key = int_value(idx);
    }
    object = get_item(rt, object, key);
    begin = end + 1;
  }
  return object;
}

namespace {

struct SliceBounds {
  int64_t start;
  int64_t step;
  int64_t n_items;
};

std::optional<int64_t> slice_index(const Value& value) {
  if (value.missing() || value.is(Type::kNone)) return std::nullopt;
  if (!value.is_int_like()) {
    require_defined(value);
    fail("slice indices must be integers or None");
  }
  return value.as_int();
}

// The items start, start + step, ... that Python's slice of `size` items has.
SliceBounds slice_bounds(int64_t size, const Value& start, const Value& stop, const Value& step) {
  const int64_t by = slice_index(step).value_or(1);
  if (by == 0) fail("slice step cannot be zero");
  const int64_t lowest = by > 0 ? 0 : -1;
  const int64_t highest = by > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> idx, int64_t fallback) {
    if (!idx) return fallback;
    return std::clamp(*idx < 0 ? *idx + size : *idx, lowest, highest);
  };
  const int64_t from = place(slice_index(start), by > 0 ? lowest : highest);
  const int64_t to = place(slice_index(stop), by > 0 ? highest : lowest);
  const uint64_t stride = by > 0 ? static_cast<uint64_t>(by) : 0 - static_cast<uint64_t>(by);
  const int64_t distance = by > 0 ? to - from : from - to;
  const int64_t n_items =
      distance > 0 ? static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride + 1) : 0;
  return {from, by, n_items};
}

Value slice_text(Runtime& rt, const Str& str, const Value& start, const Value& stop,
                 const Value& step) {
  const std::string_view text = str.text;
  rt.step_bytes(text.size() * 2);
  const SliceBounds bounds = slice_bounds(count_chars(text), start, stop, step);
  if (bounds.n_items == 0) return slice_value(rt, str, 0, 0);
  size_t pos = byte_of_char(text, bounds.start);
  if (bounds.step == 1) {
    const size_t size = byte_of_char(text.substr(pos), bounds.n_items);
    return slice_value(rt, str, pos, size);
  }
  TextBuilder out(rt);
  for (int64_t i = 0; i < bounds.n_items; ++i) {
    rt.step();
    const size_t size = char_at(text, pos).size_bytes;
    out.add_slice(str, pos, size);
    if (i + 1 == bounds.n_items) break;
    for (int64_t k = 0; k < bounds.step; ++k) pos += char_at(text, pos).size_bytes;
    for (int64_t k = 0; k > bounds.step; --k) pos = previous_char(text, pos);
  }
  return out.finish_value();
}

}  // namespace

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  require_defined(object);
  if (object.is(Type::kString)) return slice_text(rt, *object.str, start, stop, step);
  if (!is_indexable(object)) fail("'{}' object cannot be sliced", type_name(object));
  const List& list = *object.list;
  const auto size = static_cast<int64_t>(list.size);
  const SliceBounds bounds = slice_bounds(size, start, stop, step);
  rt.step(bounds.n_items / 8);
  List* result = make_list(rt, list.kind, static_cast<size_t>(bounds.n_items), list.from_input);
  if (list.kind == ListKind::kRange) {
    // Wraps around only where the range is empty and its bounds are but printed.
    const auto mul_add = [](int64_t base, int64_t n, int64_t by) {
      return static_cast<int64_t>(static_cast<uint64_t>(base) +
                                  static_cast<uint64_t>(n) * static_cast<uint64_t>(by));
    };
    const int64_t first = mul_add(list.range->start, bounds.start, list.range->step);
    const int64_t by = mul_add(0, bounds.step, list.range->step);
    result->range = rt.arena.create(RangeBounds{first, mul_add(first, bounds.n_items, by), by});
  }
  for (int64_t i = 0; i < bounds.n_items; ++i) {
    push(rt, *result, list.items[bounds.start + i * bounds.step]);
  }
  return list_value(result);
}

std::span<const Value> iterate(Runtime& rt, const Value& value) {
  if (value.is(Type::kUndefined)) return {};
  if (value.is(Type::kList)) {
    List& list = *value.list;
    if (list.kind != ListKind::kGenerator) return list.span();
    return list.span().subspan(std::exchange(list.cursor, list.size));
  }
  if (value.is(Type::kDict)) {
    List* keys = make_list(rt, ListKind::kList, value.dict->size, false);
    rt.step(static_cast<int64_t>(value.dict->size / 8));
    for (const Entry& entry : value.dict->span()) push(rt, *keys, entry.key);
    return keys->span();
  }
  if (value.is(Type::kString)) {
    const Str& str = *value.str;
    List* chars = make_list(rt, ListKind::kList, str.text.size(), false);
    rt.step(static_cast<int64_t>(str.text.size() / 8));
    Char c;
    for (CharReader reader(str); reader.next(c);) {
      push(rt, *chars, slice_value(rt, str, c.begin_bytes, c.size_bytes));
    }
    return chars->span();
  }
  fail("'{}' object is not iterable", type_name(value));
}

std::optional<int64_t> find_length(const Value& value) {
  switch (value.type) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      return count_chars(value.str->text);
    case Type::kList:
      if (value.list->kind == ListKind::kGenerator) return std::nullopt;
      return static_cast<int64_t>(value.list->size);
    case Type::kDict:
      return static_cast<int64_t>(value.dict->size);
    default:
      return std::nullopt;
  }
}

int64_t length(const Value& value) {
  const auto n = find_length(value);
  if (!n) fail("object of type '{}' has no len()", type_name(value));
  return *n;
}

}  // namespace apr::jinja
