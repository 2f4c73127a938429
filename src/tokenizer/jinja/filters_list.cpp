// Filters on sequences and mappings.
#include <algorithm>
#include <vector>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

Value length_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("length", args);
  if (self.is(Type::kString)) rt.step_bytes(self.str->text.size());
  return int_value(length(self));
}

Value default_filter(Runtime& rt, Value self, const Args& args) {
  const auto [fallback, boolean] = bind("default", args, {"default_value", "boolean"});
  if (!self.is(Type::kUndefined) && !(bool_arg(boolean, false) && !truthy(self))) return self;
  return fallback.missing() ? view_str(rt, "", true) : fallback;
}

Value first_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("first", args);
  if (self.is(Type::kList) && self.list->kind == ListKind::kGenerator) {
    List& list = *self.list;
    if (list.cursor < list.size) return list.items[list.cursor++];
  } else if (self.is(Type::kString) && !self.str->text.empty()) {
    return slice_value(rt, *self.str, 0, char_at(self.str->text, 0).size_bytes);
  } else {
    const auto items = iterate(rt, self);
    if (!items.empty()) return items[0];
  }
  return make_undefined_hint(rt, "No first item, sequence was empty.");
}

Value last_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("last", args);
  if (self.is(Type::kList) && self.list->kind == ListKind::kGenerator) {
    fail("'generator' object is not reversible");
  }
  if (self.is(Type::kString) && !self.str->text.empty()) {
    const size_t pos = previous_char(self.str->text, self.str->text.size());
    return slice_value(rt, *self.str, pos, self.str->text.size() - pos);
  }
  const auto items = iterate(rt, self);
  return items.empty() ? make_undefined_hint(rt, "No last item, sequence was empty.")
                       : items.back();
}

Value join_filter(Runtime& rt, Value self, const Args& args) {
  const auto [separator_arg, attribute] = bind("join", args, {"d", "attribute"});
  const Str& separator =
      separator_arg.missing() ? *view_str(rt, "", true).str : to_text(rt, separator_arg);
  TextBuilder out(rt);
  bool first = true;
  for (const Value& item : iterate(rt, self)) {
    rt.step();
    if (!first) out.add(separator);
    first = false;
    out.add(to_text(rt, get_path(rt, item, attribute)));
  }
  return out.finish_value();
}

Value copy_of(Runtime& rt, std::span<const Value> items, ListKind kind, bool from_input) {
  List* list = make_list(rt, kind, items.size(), from_input);
  rt.step(static_cast<int64_t>(items.size() / 8));
  for (const Value& item : items) push(rt, *list, item);
  return list_value(list);
}

Value list_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("list", args);
  return copy_of(rt, iterate(rt, self), ListKind::kList, is_from_input(self));
}

Value items_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("items", args);
  if (!self.is(Type::kDict) && !self.is(Type::kUndefined)) {
    fail("Can only get item pairs from a mapping.");
  }
  const bool from_input = is_from_input(self);
  List* pairs = make_list(rt, ListKind::kGenerator, 0, from_input);
  if (self.is(Type::kDict)) {
    for (const Entry& entry : self.dict->span()) {
      rt.step();
      push(rt, *pairs, make_tuple(rt, {entry.key, entry.value}, from_input));
    }
  }
  return list_value(pairs);
}

Value reverse_filter(Runtime& rt, Value self, const Args& args) {
  bind_none("reverse", args);
  if (self.is(Type::kString)) {
    return get_slice(rt, self, none_value(), none_value(), int_value(-1));
  }
  const auto items = iterate(rt, self);
  // Python reverses a generator into a list, everything else into an iterator.
  const bool from_generator = self.is(Type::kList) && self.list->kind == ListKind::kGenerator;
  Value result = copy_of(rt, items, from_generator ? ListKind::kList : ListKind::kGenerator,
                         is_from_input(self));
  std::reverse(result.list->items, result.list->items + result.list->size);
  return result;
}

// Items with what they are sorted by: one key for each attribute.
struct Keyed {
  Value item;
  std::vector<Value> keys;
};

Value folded(Runtime& rt, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is(Type::kString)) return value;
  return str_value(&change_case(rt, *value.str, Case::kLower));
}

// As Python compares lists of keys: equal keys are passed over, the first other pair decides.
bool keys_less(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(rt, a[i], b[i])) return order(rt, a[i], b[i], "<") < 0;
  }
  return false;
}

std::vector<Value> attribute_list(Runtime& rt, const Value& attribute) {
  if (!attribute.is(Type::kString)) return {attribute};
  std::vector<Value> paths;
  const Str& str = *attribute.str;
  for (size_t begin = 0; begin <= str.text.size();) {
    const size_t end = std::min(str.text.find(',', begin), str.text.size());
    paths.push_back(slice_value(rt, str, begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

void stable_sort(Runtime& rt, std::vector<Keyed>& rows, bool reverse) {
  // Reversed twice around, as Python does, so equal items keep their order.
  if (reverse) std::reverse(rows.begin(), rows.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Keyed& a, const Keyed& b) { return keys_less(rt, a.keys, b.keys); });
  if (reverse) std::reverse(rows.begin(), rows.end());
}

Value sort_filter(Runtime& rt, Value self, const Args& args) {
  const auto [reverse, case_sensitive, attribute] =
      bind("sort", args, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> paths = attribute_list(rt, attribute);
  const auto items = iterate(rt, self);
  rt.arena.charge(items.size() * (sizeof(Keyed) + paths.size() * sizeof(Value)) * 2);
  std::vector<Keyed> rows;
  rows.reserve(items.size());
  for (const Value& item : items) {
    rt.step();
    Keyed row{item, {}};
    for (const Value& path : paths) {
      row.keys.push_back(folded(rt, get_path(rt, item, path), bool_arg(case_sensitive, false)));
    }
    rows.push_back(std::move(row));
  }
  stable_sort(rt, rows, bool_arg(reverse, false));
  List* result = make_list(rt, ListKind::kList, rows.size(), is_from_input(self));
  for (const Keyed& row : rows) push(rt, *result, row.item);
  return list_value(result);
}

Value dictsort_filter(Runtime& rt, Value self, const Args& args) {
  const auto [case_sensitive, by_arg, reverse] =
      bind("dictsort", args, {"case_sensitive", "by", "reverse"});
  require_defined(self);
  if (!self.is(Type::kDict)) fail("dictsort needs a mapping, not {}", type_name(self));
  const std::string_view by = by_arg.missing() ? "key" : required_str("dictsort", by_arg).text;
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  const bool from_input = is_from_input(self);
  rt.arena.charge(self.dict->size * (sizeof(Keyed) + sizeof(Value)) * 2);
  std::vector<Keyed> rows;
  for (const Entry& entry : self.dict->span()) {
    rt.step();
    const Value& key = by == "key" ? entry.key : entry.value;
    rows.push_back({make_tuple(rt, {entry.key, entry.value}, from_input),
                    {folded(rt, key, bool_arg(case_sensitive, false))}});
  }
  stable_sort(rt, rows, bool_arg(reverse, false));
  List* result = make_list(rt, ListKind::kList, rows.size(), from_input);
  for (const Keyed& row : rows) push(rt, *result, row.item);
  return list_value(result);
}

Value unique_filter(Runtime& rt, Value self, const Args& args) {
  const auto [case_sensitive, attribute] = bind("unique", args, {"case_sensitive", "attribute"});
  List* result = make_list(rt, ListKind::kGenerator, 0, is_from_input(self));
  Dict* seen = make_dict(rt, 0, false);
  for (const Value& item : iterate(rt, self)) {
    const Value key = folded(rt, get_path(rt, item, attribute), bool_arg(case_sensitive, false));
    if (find_entry(rt, *seen, key) != nullptr) continue;
    set_entry(rt, *seen, key, none_value());
    push(rt, *result, item);
  }
  return list_value(result);
}

template <bool kMax>
Value extreme_filter(Runtime& rt, Value self, const Args& args) {
  const auto [case_sensitive, attribute] =
      bind(kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  const auto items = iterate(rt, self);
  if (items.empty()) return make_undefined_hint(rt, "No aggregated item, sequence was empty.");
  // Bindings captured by name: clang before 16 captures none.
  const auto key_of = [&rt, &path = attribute, &cased = case_sensitive](const Value& item) {
    return folded(rt, get_path(rt, item, path), bool_arg(cased, false));
  };
  Value best = items[0];
  Value best_key = key_of(best);
  for (const Value& item : items.subspan(1)) {
    const Value key = key_of(item);
    const auto relation = order(rt, key, best_key, kMax ? ">" : "<");
    if (kMax ? relation > 0 : relation < 0) {
      best = item;
      best_key = key;
    }
  }
  return best;
}

Value sum_filter(Runtime& rt, Value self, const Args& args) {
  const auto [attribute, start] = bind("sum", args, {"attribute", "start"});
  Value total = start.missing() ? int_value(0) : start;
  if (total.is(Type::kString)) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(rt, self)) {
    rt.step();
    total = arithmetic(rt, Op::kAdd, total, get_path(rt, item, attribute));
  }
  return total;
}

Value batch_filter(Runtime& rt, Value self, const Args& args) {
  const auto [n_arg, fill] = bind("batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n_columns = int_arg(n_arg, 0);
  if (n_columns <= 0) fail("batch: the number of columns must be above 0");
  List* rows = make_list(rt, ListKind::kGenerator, 0, is_from_input(self));
  List* row = nullptr;
  for (const Value& item : iterate(rt, self)) {
    rt.step();
    if (row == nullptr || static_cast<int64_t>(row->size) == n_columns) {
      row = make_list(rt, ListKind::kList, 0, is_from_input(self));
      push(rt, *rows, list_value(row));
    }
    push(rt, *row, item);
  }
  const bool has_fill = !fill.missing() && !fill.is(Type::kNone);
  while (has_fill && row != nullptr && static_cast<int64_t>(row->size) < n_columns) {
    rt.step();
    push(rt, *row, fill);
  }
  return list_value(rows);
}

Value slice_filter(Runtime& rt, Value self, const Args& args) {
  const auto [n_arg, fill] = bind("slice", args, {"slices", "fill_with"}, 1);
  const int64_t n_slices = int_arg(n_arg, 0);
  if (n_slices <= 0) fail("slice: the number of slices must be above 0");
  const auto items = iterate(rt, self);
  const auto n_items = static_cast<int64_t>(items.size());
  List* slices = make_list(rt, ListKind::kGenerator, 0, is_from_input(self));
  size_t pos = 0;
  for (int64_t i = 0; i < n_slices; ++i) {
    rt.step();
    const bool has_extra = i < n_items % n_slices;
    const auto size = static_cast<size_t>(n_items / n_slices + (has_extra ? 1 : 0));
    Value part = copy_of(rt, items.subspan(pos, size), ListKind::kList, is_from_input(self));
    if (!has_extra && !fill.missing() && !fill.is(Type::kNone)) push(rt, *part.list, fill);
    push(rt, *slices, part);
    pos += size;
  }
  return list_value(slices);
}

constexpr Builtin kListFilters[] = {
    {"length", length_filter},   {"count", length_filter},       {"default", default_filter},
    {"d", default_filter},       {"first", first_filter},        {"last", last_filter},
    {"join", join_filter},       {"list", list_filter},          {"items", items_filter},
    {"reverse", reverse_filter}, {"sort", sort_filter},          {"dictsort", dictsort_filter},
    {"unique", unique_filter},   {"min", extreme_filter<false>}, {"max", extreme_filter<true>},
    {"sum", sum_filter},         {"batch", batch_filter},        {"slice", slice_filter},
};

}  // namespace

std::span<const Builtin> list_filters() {
  return kListFilters;
}

}  // namespace apr::jinja
