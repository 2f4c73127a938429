// The functions that transformers gives a chat template.
#include <algorithm>
#include <ctime>

#include "apr/error.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

// The bound of Jinja's sandbox.
constexpr int64_t kMaxRangeItems = 100'000;

Value make_range(Runtime& rt, Value, const Args& args) {
  if (!args.named.empty() || args.positional.empty() || args.positional.size() > 3) {
    fail("range() takes 1 to 3 arguments");
  }
  int64_t bounds[3] = {0, 0, 1};  // start, stop, step
  if (args.positional.size() == 1) {
    bounds[1] = int_arg(args.positional[0], 0);
  } else {
    for (size_t i = 0; i < args.positional.size(); ++i) bounds[i] = int_arg(args.positional[i], 0);
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) fail("range() arg 3 must not be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t n_items = empty ? 0 : (distance - 1) / stride + 1;
  if (n_items > static_cast<uint64_t>(kMaxRangeItems)) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRangeItems);
  }
  List* list = make_list(rt, ListKind::kRange, n_items, false);
  for (uint64_t i = 0; i < n_items; ++i) {
    push(rt, *list,
         int_value(
             static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  list->range = rt.arena.create(RangeBounds{start, stop, step});
  return list_value(list);
}

Value make_dict_of(Runtime& rt, Value, const Args& args) {
  if (args.positional.size() > 1) fail("dict() takes at most 1 positional argument");
  Dict* dict = make_dict(rt, args.named.size(), false);
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    require_defined(source);
    if (source.is(Type::kDict)) {
      dict->from_input = source.dict->from_input;
      for (const Entry& entry : source.dict->span()) set_entry(rt, *dict, entry.key, entry.value);
    } else {
      dict->from_input = is_from_input(source);
      for (const Value& pair : iterate(rt, source)) {
        const auto items = iterate(rt, pair);
        if (items.size() != 2) fail("dict() needs pairs of a key and a value");
        set_entry(rt, *dict, items[0], items[1]);
      }
    }
  }
  for (const NamedArg& arg : args.named) {
    set_entry(rt, *dict, make_str(rt, arg.name, true), arg.value);
  }
  return dict_value(dict);
}

Value make_namespace(Runtime& rt, Value self, const Args& args) {
  Value value = make_dict_of(rt, self, args);
  value.type = Type::kNamespace;
  return value;
}

Value raise_exception(Runtime& rt, Value, const Args& args) {
  const auto [message] = bind("raise_exception()", args, {"message"}, 1);
  throw Error(ErrorCode::kInvalidFormat, std::string(to_text(rt, message).text));
}

Value strftime_now(Runtime& rt, Value, const Args& args) {
  const auto [format] = bind("strftime_now()", args, {"format"}, 1);
  const Str& str = required_str("strftime_now()", format);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  // A mark at the end tells an empty result from one that did not fit.
  if (str.text.find('\0') != std::string_view::npos)
    fail("strftime_now(): embedded null character");
  const std::string marked = std::string(str.text) + ".";
  char buffer[1024];
  const size_t size = std::strftime(buffer, sizeof(buffer), marked.c_str(), &local);
  if (size == 0) fail("strftime_now(): the result is longer than {} bytes", sizeof(buffer) - 2);
  return make_str(rt, {buffer, size - 1}, str.origin == Origin::kTemplate);
}

constexpr Builtin kFunctions[] = {
    {"range", make_range},
    {"dict", make_dict_of},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"lipsum", nullptr},
    {"cycler", nullptr},
    {"joiner", nullptr},
};

}  // namespace

const Builtin* find_function(std::string_view name) {
  return find_in(kFunctions, name);
}

}  // namespace apr::jinja
