// Calls of methods, functions, filters, tests and macros.
#include <algorithm>

#include "tokenizer/jinja/interp.h"

namespace apr::jinja {

Interp::CallArgs Interp::eval_args(const Expr& expr) {
  CallArgs result;
  for (const Expr* arg : expr.args.subspan(1)) result.positional.push_back(eval(*arg));
  for (const NamedExpr& arg : expr.named) {
    result.named.push_back({arg.name, eval(*arg.value)});
  }
  if (expr.star != nullptr) {
    const auto items = iterate(rt_, eval(*expr.star));
    rt_.arena.charge(items.size() * sizeof(Value) * 2);
    result.positional.insert(result.positional.end(), items.begin(), items.end());
  }
  if (expr.star_star != nullptr) {
    const Value named = eval(*expr.star_star);
    if (!named.is(Type::kDict)) {
      fail("argument after ** must be a mapping, not {}", type_name(named));
    }
    rt_.arena.charge(named.dict->size * sizeof(NamedArg) * 2);
    for (const Entry& entry : named.dict->span()) {
      rt_.step();
      if (!entry.key.is(Type::kString)) fail("keywords must be strings");
      const std::string_view name = entry.key.str->text;
      const bool given = std::any_of(result.named.begin(), result.named.end(),
                                     [&](const NamedArg& arg) { return arg.name == name; });
      if (given) fail("got multiple values for keyword argument '{}'", name);
      result.named.push_back({name, entry.value});
    }
  }
  rt_.line = expr.line;
  return result;
}

Value Interp::eval_call(const Expr& expr) {
  const Value callee = eval(*expr.args[0]);
  const CallArgs args = eval_args(expr);
  require_defined(callee);
  if (callee.is(Type::kMacro)) return call_macro(*callee.macro, args);
  if (callee.is(Type::kLoop)) fail("recursive loops are not supported");
  if (!callee.is(Type::kCallable)) fail("'{}' object is not callable", type_name(callee));
  const Callable& callable = *callee.callable;
  if (callable.builtin->apply == nullptr) {
    if (callable.self.is(Type::kNone)) fail("{}() is not supported", callable.builtin->name);
    fail("the method {}() of '{}' is not supported", callable.builtin->name,
         type_name(callable.self));
  }
  return callable.builtin->apply(rt_, callable.self, args.args());
}

Value Interp::eval_builtin(const Expr& expr) {
  const Value self = eval(*expr.args[0]);
  const CallArgs args = eval_args(expr);
  return expr.builtin->apply(rt_, self, args.args());
}

Value Interp::call_macro(const Macro& macro, const CallArgs& args) {
  const DepthGuard depth(rt_);
  const Stmt& definition = *macro.definition;
  const auto params = definition.params;
  const size_t n_positional = std::min(params.size(), args.positional.size());
  Scope* const outer = std::exchange(scope_, new_scope(macro.scope));

  std::vector<bool> named_used(args.named.size(), false);
  for (size_t i = 0; i < params.size(); ++i) {
    const Param& param = params[i];
    Value value;
    if (i < n_positional) value = args.positional[i];
    for (size_t k = 0; i >= n_positional && k < args.named.size(); ++k) {
      if (args.named[k].name != param.name) continue;
      value = args.named[k].value;
      named_used[k] = true;
    }
    if (value.missing() && param.default_value != nullptr) value = eval(*param.default_value);
    if (value.missing()) {
      value = make_undefined_hint(rt_, fmt::format("parameter '{}' was not provided", param.name));
    }
    define(param.name, value);
  }

  if (definition.reads_kwargs) {
    Dict* rest = make_dict(rt_, 0, false);
    for (size_t k = 0; k < args.named.size(); ++k) {
      if (named_used[k]) continue;
      set_entry(rt_, *rest, view_str(rt_, args.named[k].name, true), args.named[k].value);
    }
    define("kwargs", dict_value(rest));
  } else {
    const auto unused = std::find(named_used.begin(), named_used.end(), false);
    if (unused != named_used.end()) {
      fail("macro '{}' takes no keyword argument '{}'", definition.name,
           args.named[static_cast<size_t>(unused - named_used.begin())].name);
    }
  }
  if (definition.reads_varargs) {
    List* rest = make_list(rt_, ListKind::kTuple, 0, false);
    for (size_t i = n_positional; i < args.positional.size(); ++i) {
      push(rt_, *rest, args.positional[i]);
    }
    define("varargs", list_value(rest));
  } else if (args.positional.size() > params.size()) {
    fail("macro '{}' takes not more than {} argument(s)", definition.name, params.size());
  }

  const Str* text = nullptr;
  capture(scope_, definition.body, text);
  scope_ = outer;
  return str_value(text);
}

}  // namespace apr::jinja
