// Expressions of the parser; the order of precedence is Jinja2's.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/parser.h"

namespace apr::jinja {

Expr* Parser::new_expr(ExprKind kind, int line, const ExprList& args) {
  Expr expr;
  expr.kind = kind;
  expr.line = line;
  expr.args = arena_.copy_array(args);
  return finish(arena_.create(expr));
}

// Recomputes the height; chains that need no nesting to parse ("1+1+1...") are bounded here.
Expr* Parser::finish(Expr* expr) const {
  int below = 0;
  const auto see = [&](const Expr* child) {
    if (child != nullptr) below = std::max(below, child->height);
  };
  for (const Expr* arg : expr->args) see(arg);
  for (const NamedExpr& arg : expr->named) see(arg.value);
  see(expr->star);
  see(expr->star_star);
  expr->height = below + 1;
  if (expr->height > limits_.max_depth) {
    fail_at(expr->line,
            fmt::format("an expression nests deeper than the bound of {}", limits_.max_depth));
  }
  return expr;
}

const Expr* Parser::constant(int line, Value value) {
  Expr* expr = new_expr(ExprKind::kConst, line);
  expr->value = value;
  return expr;
}

Value Parser::string_constant(std::string_view text) {
  return str_value(arena_.create(Str{text, {}, Origin::kTemplate}));
}

const Expr* Parser::tuple(TupleOf of, Words ends, bool in_parentheses) {
  const int line = current_.line;
  ExprList items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_op(",");
    if (current_.type == TokenType::kOutputEnd || current_.type == TokenType::kTagEnd ||
        is_op(")") || is_word(ends)) {
      break;
    }
    switch (of) {
      case TupleOf::kExpressions:
        items.push_back(expression());
        break;
      case TupleOf::kNoConditionals:
        items.push_back(or_expression());
        break;
      case TupleOf::kTargets:
      case TupleOf::kSetTargets:
        items.push_back(primary(of == TupleOf::kSetTargets));
        break;
    }
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items[0];
  if (!is_tuple && !in_parentheses) unexpected("an expression");
  return new_expr(ExprKind::kTuple, line, items);
}

const Expr* Parser::target(TupleOf of, Words ends) {
  in_target_ = true;
  const Expr* result = tuple(of, ends);
  in_target_ = false;
  const auto check = [&](const auto& self, const Expr& expr) -> void {
    if (expr.kind == ExprKind::kTuple) {
      for (const Expr* item : expr.args) self(self, *item);
    } else if (expr.kind != ExprKind::kName && expr.kind != ExprKind::kNamespaceRef) {
      fail_at(expr.line, "cannot assign to this expression");
    }
  };
  check(check, *result);
  return result;
}

const Expr* Parser::expression() {
  const Nesting nesting(*this);
  int line = current_.line;
  const Expr* value = or_expression();
  while (skip_word("if")) {
    const Expr* condition = or_expression();
    const Expr* otherwise = skip_word("else") ? expression() : nullptr;
    value = new_expr(ExprKind::kConditional, line, {value, condition, otherwise});
    line = current_.line;
  }
  return value;
}

const Expr* Parser::or_expression() {
  const int line = current_.line;
  const Expr* left = and_expression();
  while (skip_word("or")) left = new_expr(ExprKind::kOr, line, {left, and_expression()});
  return left;
}

const Expr* Parser::and_expression() {
  const int line = current_.line;
  const Expr* left = not_expression();
  while (skip_word("and")) left = new_expr(ExprKind::kAnd, line, {left, not_expression()});
  return left;
}

const Expr* Parser::not_expression() {
  const int line = current_.line;
  if (!is_word("not")) return compare();
  const Nesting nesting(*this);
  advance();
  return new_expr(ExprKind::kNot, line, {not_expression()});
}

const Expr* Parser::compare() {
  constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe},
                                                      {"<", Op::kLt},  {"<=", Op::kLe},
                                                      {">", Op::kGt},  {">=", Op::kGe}};
  const int line = current_.line;
  ExprList operands = {sum()};
  std::vector<Op> ops;
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [&](const auto& row) { return is_op(row.first); });
    if (op != std::end(kOps)) {
      ops.push_back(op->second);
    } else if (is_word("in")) {
      ops.push_back(Op::kIn);
    } else if (is_word("not") && ahead().type == TokenType::kName && ahead().text == "in") {
      advance();
      ops.push_back(Op::kNotIn);
    } else {
      break;
    }
    advance();
    operands.push_back(sum());
  }
  if (ops.empty()) return operands[0];
  Expr* expr = new_expr(ExprKind::kCompare, line, operands);
  expr->ops = arena_.copy_array(ops);
  return expr;
}

const Expr* Parser::sum() {
  const int line = current_.line;
  const Expr* left = concat();
  while (is_op("+") || is_op("-")) {
    const Op op = is_op("+") ? Op::kAdd : Op::kSub;
    advance();
    Expr* expr = new_expr(ExprKind::kBinary, line, {left, concat()});
    expr->ops = arena_.copy_array<Op>({op});
    left = expr;
  }
  return left;
}

const Expr* Parser::concat() {
  const int line = current_.line;
  ExprList operands = {product()};
  while (skip_op("~")) operands.push_back(product());
  return operands.size() == 1 ? operands[0] : new_expr(ExprKind::kConcat, line, operands);
}

const Expr* Parser::product() {
  const int line = current_.line;
  const Expr* left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const Op op = is_op("*")    ? Op::kMul
                  : is_op("/")  ? Op::kDiv
                  : is_op("//") ? Op::kFloorDiv
                                : Op::kMod;
    advance();
    Expr* expr = new_expr(ExprKind::kBinary, line, {left, power()});
    expr->ops = arena_.copy_array<Op>({op});
    left = expr;
  }
  return left;
}

const Expr* Parser::power() {
  const int line = current_.line;
  const Expr* left = unary(true);
  while (skip_op("**")) {
    Expr* expr = new_expr(ExprKind::kBinary, line, {left, unary(true)});
    expr->ops = arena_.copy_array<Op>({Op::kPow});
    left = expr;
  }
  return left;
}

const Expr* Parser::unary(bool with_filter) {
  const Nesting nesting(*this);
  const int line = current_.line;
  const Expr* expr = nullptr;
  if (is_op("-") || is_op("+")) {
    const ExprKind kind = is_op("-") ? ExprKind::kMinus : ExprKind::kPlus;
    advance();
    expr = new_expr(kind, line, {unary(false)});
  } else {
    expr = primary(false);
  }
  expr = postfix(expr);
  return with_filter ? filters_and_tests(expr) : expr;
}

const Expr* Parser::primary(bool allow_namespace) {
  const Nesting nesting(*this);
  const Token token = current_;
  switch (token.type) {
    case TokenType::kName: {
      advance();
      if (token.text == "true" || token.text == "True") {
        return constant(token.line, bool_value(true));
      }
      if (token.text == "false" || token.text == "False") {
        return constant(token.line, bool_value(false));
      }
      if (token.text == "none" || token.text == "None") return constant(token.line, none_value());
      const bool is_attribute = allow_namespace && skip_op(".");
      Expr* name = new_expr(is_attribute ? ExprKind::kNamespaceRef : ExprKind::kName, token.line);
      name->name = token.text;
      if (is_attribute) name->value = string_constant(expect_name());
      if (!in_target_) reads_.emplace(token.text);
      if (macro_ != nullptr && token.text == "varargs") macro_->reads_varargs = true;
      if (macro_ != nullptr && token.text == "kwargs") macro_->reads_kwargs = true;
      return name;
    }
    case TokenType::kString: {
      advance();
      if (current_.type != TokenType::kString) {
        return constant(token.line, string_constant(token.text));
      }
      std::string joined(token.text);
      for (; current_.type == TokenType::kString; advance()) joined += current_.text;
      return constant(token.line, string_constant(arena_.copy_text(joined)));
    }
    case TokenType::kInteger:
      advance();
      return constant(token.line, int_value(token.integer));
    case TokenType::kFloat:
      advance();
      return constant(token.line, float_value(token.real));
    default:
      break;
  }
  if (skip_op("(")) {
    const Expr* inner = tuple(TupleOf::kExpressions, {}, true);
    expect_op(")");
    return inner;
  }
  if (is_op("[")) return list_literal();
  if (is_op("{")) return dict_literal();
  unexpected("an expression");
}

const Expr* Parser::list_literal() {
  const int line = current_.line;
  ExprList items;
  for (advance(); !is_op("]");) {
    if (!items.empty()) expect_op(",");
    if (is_op("]")) break;
    items.push_back(expression());
  }
  advance();
  return new_expr(ExprKind::kList, line, items);
}

const Expr* Parser::dict_literal() {
  const int line = current_.line;
  ExprList items;
  for (advance(); !is_op("}");) {
    if (!items.empty()) expect_op(",");
    if (is_op("}")) break;
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
  }
  advance();
  return new_expr(ExprKind::kDict, line, items);
}

}  // namespace apr::jinja
