// `for` and its `loop`.
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/interp.h"

namespace apr::jinja {

std::optional<Value> Interp::take(Loop& loop) {
  if (loop.after) return *std::exchange(loop.after, std::nullopt);
  while (loop.next_source < loop.source.size()) {
    rt_.step();
    const Value item = loop.source[loop.next_source++];
    if (!loop.filtered) return item;
    Scope* const outer = std::exchange(scope_, new_scope(loop.scope));
    assign(*loop.statement->target, item);
    const bool passes = truthy(eval(*loop.statement->test));
    scope_ = outer;
    if (passes) return item;
  }
  return std::nullopt;
}

bool Interp::peek(Loop& loop) {
  if (!loop.after) loop.after = take(loop);
  return loop.after.has_value();
}

int64_t Interp::loop_length(Loop& loop) {
  if (loop.length) return *loop.length;
  const bool has_after = loop.after.has_value();
  if (loop.filtered) {
    const std::optional<Value> after = std::exchange(loop.after, std::nullopt);
    List* rest = make_list(rt_, ListKind::kList, 0, false);
    while (const auto item = take(loop)) push(rt_, *rest, *item);
    loop.source = rest->span();
    loop.next_source = 0;
    loop.filtered = false;
    loop.after = after;
  }
  const auto n_left = static_cast<int64_t>(loop.source.size() - loop.next_source);
  loop.length = loop.index0 + 1 + (has_after ? 1 : 0) + n_left;
  return *loop.length;
}

namespace {

Value cycle(Runtime&, Value self, const Args& args) {
  if (args.positional.empty()) fail("no items for cycling given");
  const auto index0 = static_cast<size_t>(self.loop->index0);
  return args.positional[index0 % args.positional.size()];
}

Value changed(Runtime& rt, Value self, const Args& args) {
  List* values = make_list(rt, ListKind::kTuple, args.positional.size(), false);
  for (const Value& value : args.positional) push(rt, *values, value);
  const Value now = list_value(values);
  if (!self.loop->changed.missing() && equal(rt, self.loop->changed, now)) {
    return bool_value(false);
  }
  self.loop->changed = now;
  return bool_value(true);
}

constexpr Builtin kCycle = {"cycle", cycle};
constexpr Builtin kChanged = {"changed", changed};

}  // namespace

Value Interp::loop_attr(Loop& loop, const Str& name) {
  Value self;
  self.type = Type::kLoop;
  self.loop = &loop;
  const std::string_view attr = name.text;
  if (attr == "index") return int_value(loop.index0 + 1);
  if (attr == "index0") return int_value(loop.index0);
  if (attr == "first") return bool_value(loop.index0 == 0);
  if (attr == "last") return bool_value(!peek(loop));
  if (attr == "length") return int_value(loop_length(loop));
  if (attr == "revindex") return int_value(loop_length(loop) - loop.index0);
  if (attr == "revindex0") return int_value(loop_length(loop) - loop.index0 - 1);
  if (attr == "depth") return int_value(1);
  if (attr == "depth0") return int_value(0);
  if (attr == "previtem") {
    return loop.index0 == 0 ? make_undefined_hint(rt_, "there is no previous item") : loop.before;
  }
  if (attr == "nextitem") {
    return peek(loop) ? *loop.after : make_undefined_hint(rt_, "there is no next item");
  }
  if (attr == "cycle") return make_callable(rt_, self, kCycle);
  if (attr == "changed") return make_callable(rt_, self, kChanged);
  return make_undefined_key(rt_, self, str_value(&name));
}

Interp::Flow Interp::run_for(const Stmt& stmt) {
  Loop state;
  state.source = iterate(rt_, eval(*stmt.expr));
  state.statement = &stmt;
  state.scope = scope_;
  state.filtered = stmt.test != nullptr;
  Loop& loop = *rt_.arena.create(state);
  Value loop_value;
  loop_value.type = Type::kLoop;
  loop_value.loop = &loop;
  Scope* const outer = scope_;
  bool any = false;
  Flow flow = Flow::kNormal;
  while (const auto item = take(loop)) {
    any = true;
    ++loop.index0;
    loop.before = loop.current;
    loop.current = *item;
    scope_ = new_scope(outer);
    define("loop", loop_value);
    rt_.line = stmt.line;
    assign(*stmt.target, *item);
    flow = run(stmt.body);
    scope_ = outer;
    if (flow == Flow::kBreak) break;
  }
  if (!any) return run_in(new_scope(outer), stmt.else_body);
  return Flow::kNormal;
}

}  // namespace apr::jinja
