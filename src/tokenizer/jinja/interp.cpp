#include "tokenizer/jinja/interp.h"

#include "apr/error.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/json_input.h"
#include "tokenizer/jinja/lexer.h"

namespace apr::jinja {

std::vector<TextPiece> Interp::render(Body body, const nlohmann::ordered_json& input) {
  try {
    if (!input.is_object()) fail("not an object but {}", input.type_name());
    input_ = from_json(rt_, input).dict;
    mark_token_variables();
  } catch (const Fault& fault) {
    throw Error(ErrorCode::kInvalidFormat, fmt::format("chat template input: {}", fault.what()));
  }
  try {
    TextBuilder out(rt_);
    out_ = &out;
    scope_ = new_scope(nullptr);
    run(body);
    return out.finish_pieces();
  } catch (const Fault& fault) {
    fail_at(rt_.line, fault.what());
  }
}

// The texts of special tokens come from the model, not from a person: they count as the template's.
void Interp::mark_token_variables() {
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token",
                           "cls_token", "mask_token"}) {
    Entry* entry = find_entry(rt_, *input_, name);
    if (entry == nullptr || !entry->value.is(Type::kString)) continue;
    entry->value = view_str(rt_, entry->value.str->text, true);
  }
}

Scope* Interp::new_scope(Scope* parent) {
  return rt_.arena.create(Scope{parent, nullptr});
}

void Interp::define(std::string_view name, const Value& value) {
  for (Variable* v = scope_->variables; v != nullptr; v = v->next) {
    rt_.step();
    if (v->name == name) {
      v->value = value;
      return;
    }
  }
  scope_->variables = rt_.arena.create(Variable{name, value, scope_->variables});
}

Value Interp::lookup(std::string_view name) {
  constexpr int kVariablesPerStep = 16;
  int n_seen = 0;
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const Variable* v = scope->variables; v != nullptr; v = v->next) {
      if (++n_seen % kVariablesPerStep == 0) rt_.step();
      if (v->name == name) return v->value;
    }
  }
  if (const Entry* entry = find_entry(rt_, *input_, name)) return entry->value;
  if (const Builtin* function = find_function(name)) {
    return make_callable(rt_, none_value(), *function);
  }
  return make_undefined_name(rt_, name);
}

void Interp::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) {
    define(target.name, value);
    return;
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    const Value object = lookup(target.name);
    if (!object.is(Type::kNamespace)) fail("cannot assign attribute on non-namespace object");
    set_entry(rt_, *object.dict, target.value, value);
    return;
  }
  const bool unpackable = value.is(Type::kList) || value.is(Type::kDict) ||
                          value.is(Type::kString) || value.is(Type::kUndefined);
  if (!unpackable) fail("cannot unpack non-iterable {} object", type_name(value));
  const auto items = iterate(rt_, value);
  const size_t n_targets = target.args.size();
  if (items.size() < n_targets) {
    fail("not enough values to unpack (expected {}, got {})", n_targets, items.size());
  }
  if (items.size() > n_targets) fail("too many values to unpack (expected {})", n_targets);
  for (size_t i = 0; i < n_targets; ++i) assign(*target.args[i], items[i]);
}

Interp::Flow Interp::run(Body body) {
  for (const Stmt* stmt : body) {
    const Flow flow = run(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interp::Flow Interp::run_in(Scope* scope, Body body) {
  Scope* const outer = std::exchange(scope_, scope);
  const Flow flow = run(body);
  scope_ = outer;
  return flow;
}

Interp::Flow Interp::run(const Stmt& stmt) {
  const DepthGuard depth(rt_);
  rt_.step();
  rt_.line = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      out_->add(*stmt.text);
      return Flow::kNormal;
    case StmtKind::kOutput:
      out_->add(to_text(rt_, eval(*stmt.expr)));
      return Flow::kNormal;
    case StmtKind::kDo:
      eval(*stmt.expr);
      return Flow::kNormal;
    case StmtKind::kSet:
      assign(*stmt.target, eval(*stmt.expr));
      return Flow::kNormal;
    case StmtKind::kSetBlock:
    case StmtKind::kFilter:
      return run_captured(stmt);
    case StmtKind::kIf:
      return run_if(stmt);
    case StmtKind::kFor:
      return run_for(stmt);
    case StmtKind::kMacro: {
      Value macro;
      macro.type = Type::kMacro;
      macro.macro = rt_.arena.create(Macro{&stmt, scope_});
      define(stmt.name, macro);
      return Flow::kNormal;
    }
    case StmtKind::kWith:
      return run_with(stmt);
    case StmtKind::kScope:
      return run_in(new_scope(scope_), stmt.body);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interp::Flow Interp::run_if(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr || truthy(eval(*branch.condition))) return run(branch.body);
  }
  return Flow::kNormal;
}

Interp::Flow Interp::run_with(const Stmt& stmt) {
  // The values are of the scope around; only then the names are set.
  std::vector<Value> values;
  for (const Binding& binding : stmt.bindings) values.push_back(eval(*binding.value));
  Scope* const outer = std::exchange(scope_, new_scope(scope_));
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.bindings[i].target, values[i]);
  const Flow flow = run(stmt.body);
  scope_ = outer;
  return flow;
}

Interp::Flow Interp::capture(Scope* scope, Body body, const Str*& text) {
  TextBuilder captured(rt_);
  TextBuilder* const outer = std::exchange(out_, &captured);
  const Flow flow = run_in(scope, body);
  out_ = outer;
  text = &captured.finish();
  return flow;
}

Interp::Flow Interp::run_captured(const Stmt& stmt) {
  const Str* text = nullptr;
  const Flow flow = capture(new_scope(scope_), stmt.body, text);
  if (flow != Flow::kNormal) return flow;  // a break leaves the block without its effect
  rt_.line = stmt.line;
  Value value = str_value(text);
  if (stmt.expr != nullptr) {
    captured_ = value;
    value = eval(*stmt.expr);
  }
  if (stmt.kind == StmtKind::kSetBlock) {
    assign(*stmt.target, value);
  } else {
    out_->add(to_text(rt_, value));
  }
  return Flow::kNormal;
}

}  // namespace apr::jinja
