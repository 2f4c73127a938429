// Expressions.
#include "tokenizer/jinja/interp.h"

namespace apr::jinja {

Value Interp::eval(const Expr& expr) {
  const DepthGuard depth(rt_);
  rt_.step();
  rt_.line = expr.line;
  return eval_node(expr);
}

Value Interp::eval_optional(const Expr* expr) {
  return expr == nullptr ? Value() : eval(*expr);
}

Value Interp::eval_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
    case ExprKind::kNamespaceRef:
      return lookup(expr.name);
    case ExprKind::kList:
      return eval_list(expr, ListKind::kList);
    case ExprKind::kTuple:
      return eval_list(expr, ListKind::kTuple);
    case ExprKind::kDict:
      return eval_dict(expr);
    case ExprKind::kAttr:
      return eval_attr(expr);
    case ExprKind::kItem:
      return eval_item(expr);
    case ExprKind::kSlice: {
      const Value object = eval(*expr.args[0]);
      const Value start = eval_optional(expr.args[1]);
      const Value stop = eval_optional(expr.args[2]);
      return get_slice(rt_, object, start, stop, eval_optional(expr.args[3]));
    }
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return eval_builtin(expr);
    case ExprKind::kCaptured:
      return captured_;
    case ExprKind::kNot:
      return bool_value(!truthy(eval(*expr.args[0])));
    case ExprKind::kMinus:
    case ExprKind::kPlus:
      return negate(eval(*expr.args[0]), expr.kind == ExprKind::kMinus);
    case ExprKind::kAnd: {
      const Value left = eval(*expr.args[0]);
      return truthy(left) ? eval(*expr.args[1]) : left;
    }
    case ExprKind::kOr: {
      const Value left = eval(*expr.args[0]);
      return truthy(left) ? left : eval(*expr.args[1]);
    }
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kBinary: {
      const Value left = eval(*expr.args[0]);
      const Value right = eval(*expr.args[1]);
      rt_.line = expr.line;
      return arithmetic(rt_, expr.ops[0], left, right);
    }
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kConditional:
      return eval_conditional(expr);
  }
  return Value();
}

Value Interp::eval_list(const Expr& expr, ListKind kind) {
  List* list = make_list(rt_, kind, expr.args.size(), false);
  for (const Expr* arg : expr.args) push(rt_, *list, eval(*arg));
  return list_value(list);
}

Value Interp::eval_dict(const Expr& expr) {
  Dict* dict = make_dict(rt_, expr.args.size() / 2, false);
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    const Value key = eval(*expr.args[i]);
    set_entry(rt_, *dict, key, eval(*expr.args[i + 1]));
  }
  return dict_value(dict);
}

Value Interp::eval_compare(const Expr& expr) {
  Value left = eval(*expr.args[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value right = eval(*expr.args[i + 1]);
    rt_.line = expr.line;
    bool holds = false;
    switch (expr.ops[i]) {
      case Op::kEq:
        holds = equal(rt_, left, right);
        break;
      case Op::kNe:
        holds = !equal(rt_, left, right);
        break;
      case Op::kLt:
        holds = order(rt_, left, right, "<") < 0;
        break;
      case Op::kLe:
        holds = order(rt_, left, right, "<=") <= 0;
        break;
      case Op::kGt:
        holds = order(rt_, left, right, ">") > 0;
        break;
      case Op::kGe:
        holds = order(rt_, left, right, ">=") >= 0;
        break;
      case Op::kIn:
        holds = contains(rt_, right, left);
        break;
      default:
        holds = !contains(rt_, right, left);
        break;
    }
    if (!holds) return bool_value(false);
    left = right;
  }
  return bool_value(true);
}

Value Interp::eval_concat(const Expr& expr) {
  TextBuilder text(rt_);
  for (const Expr* arg : expr.args) text.add(to_text(rt_, eval(*arg)));
  return text.finish_value();
}

Value Interp::eval_attr(const Expr& expr) {
  const Value object = eval(*expr.args[0]);
  rt_.line = expr.line;
  if (object.is(Type::kLoop)) return loop_attr(*object.loop, *expr.value.str);
  return get_attr(rt_, object, *expr.value.str);
}

Value Interp::eval_item(const Expr& expr) {
  const Value object = eval(*expr.args[0]);
  const Value key = eval(*expr.args[1]);
  rt_.line = expr.line;
  if (object.is(Type::kLoop) && key.is(Type::kString)) return loop_attr(*object.loop, *key.str);
  return get_item(rt_, object, key);
}

Value Interp::eval_conditional(const Expr& expr) {
  if (truthy(eval(*expr.args[1]))) return eval(*expr.args[0]);
  if (expr.args[2] != nullptr) return eval(*expr.args[2]);
  return make_undefined_hint(
      rt_, fmt::format("the inline if-expression on line {} evaluated to false and no else "
                       "section was defined.",
                       expr.line));
}

}  // namespace apr::jinja
