// What evaluation needs everywhere: the memory, the bounds, and the making of values.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "tokenizer/jinja/arena.h"
#include "tokenizer/jinja/value.h"

namespace apr::jinja {

template <typename... T>
[[noreturn]] void fail(fmt::format_string<T...> format, T&&... args) {
  throw Fault(fmt::format(format, std::forward<T>(args)...));
}

// The bounds of a rendering, as apr::TemplateLimits gives them.
struct Limits {
  int64_t max_steps = 0;
  int max_depth = 0;
  int64_t max_bytes = 0;
};

class Runtime {
 public:
  // `used_bytes` of the memory bound are taken already, by the parsed template.
  Runtime(const Limits& limits, int64_t used_bytes)
      : arena(limits.max_bytes, used_bytes), limits_(limits) {}

  // Counts work; throws Fault naming the bound when there was too much.
  void step(int64_t n_steps = 1) {
    steps_ += n_steps;
    if (steps_ > limits_.max_steps) {
      fail("the template takes more steps than its bound of {}", limits_.max_steps);
    }
  }
  // Counts the reading of `size_bytes` of a string: a step per 256 bytes.
  void step_bytes(size_t size_bytes) { step(static_cast<int64_t>(size_bytes / 256)); }

  Arena arena;
  int line = 0;  // of what is evaluated now

 private:
  friend class DepthGuard;
  Limits limits_;
  int64_t steps_ = 0;
  int depth_ = 0;
};

// One level of nesting (expressions, blocks, calls, values in values) while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Runtime& rt) : rt_(rt) {
    if (rt_.depth_ >= rt_.limits_.max_depth) {
      fail("the template nests deeper than its bound of {}", rt_.limits_.max_depth);
    }
    ++rt_.depth_;
  }
  ~DepthGuard() { --rt_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Runtime& rt_;
};

// A string that copies `text`, or that refers to text which lives longer than the rendering.
Value make_str(Runtime& rt, std::string_view text, bool from_template);
Value view_str(Runtime& rt, std::string_view text, bool from_template);

List* make_list(Runtime& rt, ListKind kind, size_t capacity, bool from_input);
void push(Runtime& rt, List& list, Value item);
Value make_tuple(Runtime& rt, std::initializer_list<Value> items, bool from_input);

Dict* make_dict(Runtime& rt, size_t capacity, bool from_input);
// The entry of `key`, or null; throws Fault for a key that Python cannot hash.
Entry* find_entry(Runtime& rt, const Dict& dict, const Value& key);
Entry* find_entry(Runtime& rt, const Dict& dict, std::string_view key);
void set_entry(Runtime& rt, Dict& dict, Value key, Value value);

Value make_undefined_name(Runtime& rt, std::string_view name);
Value make_undefined_key(Runtime& rt, Value object, Value key);
Value make_undefined_hint(Runtime& rt, std::string_view hint);
Value make_callable(Runtime& rt, Value self, const Builtin& builtin);

// Jinja's message for a use of an undefined value: "'x' is undefined".
std::string undefined_message(const Undefined& undefined);
// Throws that message when `value` is undefined.
void require_defined(const Value& value);

// Whether strings and containers came from the input, wholly or in part.
bool is_from_input(const Value& value);

}  // namespace apr::jinja
