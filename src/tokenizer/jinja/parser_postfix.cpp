// What follows an operand: attributes, subscripts, calls, filters, tests.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/parser.h"

namespace apr::jinja {

const Expr* Parser::postfix(const Expr* expr) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      expr = subscript(expr);
    } else if (is_op("(")) {
      expr = call(expr);
    } else {
      return expr;
    }
  }
}

const Expr* Parser::subscript(const Expr* expr) {
  const int line = current_.line;
  if (skip_op(".")) {
    if (current_.type == TokenType::kInteger) {
      const Expr* key = constant(line, int_value(current_.integer));
      advance();
      return new_expr(ExprKind::kItem, line, {expr, key});
    }
    Expr* attr = new_expr(ExprKind::kAttr, line, {expr});
    attr->name = expect_name();
    attr->value = string_constant(attr->name);
    return attr;
  }
  advance();
  ExprList bounds = {expr, nullptr, nullptr, nullptr};
  size_t bound_idx = 1;
  const auto at_end = [&] { return is_op("]") || is_op(":"); };
  if (!at_end()) bounds[1] = expression();
  while (bound_idx < 3 && skip_op(":")) {
    ++bound_idx;
    if (!at_end()) bounds[bound_idx] = expression();
  }
  if (is_op(",")) fail_at(line, "several subscripts at once are not supported");
  if (bound_idx == 1 && bounds[1] == nullptr) unexpected("an expression");
  expect_op("]");
  if (bound_idx == 1) return new_expr(ExprKind::kItem, line, {expr, bounds[1]});
  return new_expr(ExprKind::kSlice, line, bounds);
}

void Parser::call_args(Expr& expr, ExprList& args) {
  const int line = current_.line;
  std::vector<NamedExpr> named;
  expect_op("(");
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) expect_op(",");
    if (is_op(")")) break;
    bool in_order = expr.star_star == nullptr;
    if (skip_op("*")) {
      in_order = in_order && expr.star == nullptr;
      expr.star = expression();
    } else if (skip_op("**")) {
      expr.star_star = expression();
    } else if (current_.type == TokenType::kName && ahead().type == TokenType::kOperator &&
               ahead().text == "=") {
      NamedExpr arg;
      arg.name = expect_name();
      advance();
      arg.value = expression();
      const bool given_twice = std::any_of(named.begin(), named.end(),
                                           [&](const auto& n) { return n.name == arg.name; });
      if (given_twice) fail_at(line, fmt::format("argument '{}' is given twice", arg.name));
      named.push_back(arg);
    } else {
      in_order = in_order && expr.star == nullptr && named.empty();
      args.push_back(expression());
    }
    if (!in_order) fail_at(line, "the arguments of a call are out of order");
  }
  advance();
  expr.named = arena_.copy_array(named);
}

const Expr* Parser::call(const Expr* callee) {
  Expr* expr = new_expr(ExprKind::kCall, current_.line);
  ExprList args = {callee};
  call_args(*expr, args);
  expr->args = arena_.copy_array(args);
  return finish(expr);
}

const Expr* Parser::filters_and_tests(const Expr* expr) {
  while (true) {
    if (is_op("|")) {
      expr = filter_chain(expr, false);
    } else if (is_word("is")) {
      expr = test(expr);
    } else if (is_op("(")) {
      expr = call(expr);
    } else {
      return expr;
    }
  }
}

// A filter that applies another one named by a constant: that name is checked here too.
void Parser::check_named_filter(const Expr& filter) const {
  const auto name_at = [&](size_t arg_idx) -> std::string_view {
    if (arg_idx >= filter.args.size()) return {};
    const Expr& arg = *filter.args[arg_idx];
    const bool is_name = arg.kind == ExprKind::kConst && arg.value.is(Type::kString);
    return is_name ? arg.value.str->text : std::string_view();
  };
  const bool by_attribute = filter.name == "selectattr" || filter.name == "rejectattr";
  if (filter.name == "map") {
    const std::string_view name = name_at(1);
    if (!name.empty() && find_filter(name) == nullptr) {
      fail_at(filter.line, fmt::format("unknown filter '{}'", name));
    }
  } else if (by_attribute || filter.name == "select" || filter.name == "reject") {
    const std::string_view name = name_at(by_attribute ? 2 : 1);
    if (!name.empty() && find_test(name) == nullptr) {
      fail_at(filter.line, fmt::format("unknown test '{}'", name));
    }
  }
}

const Expr* Parser::filter_chain(const Expr* expr, bool inline_start) {
  while (inline_start || skip_op("|")) {
    inline_start = false;
    Expr* filter = new_expr(ExprKind::kFilter, current_.line);
    filter->name = expect_name();
    filter->builtin = find_filter(filter->name);
    if (filter->builtin == nullptr) {
      fail_at(filter->line, fmt::format("unknown filter '{}'", filter->name));
    }
    ExprList args = {expr};
    if (is_op("(")) call_args(*filter, args);
    filter->args = arena_.copy_array(args);
    check_named_filter(*filter);
    expr = finish(filter);
  }
  return expr;
}

const Expr* Parser::test(const Expr* expr) {
  const int line = current_.line;
  advance();
  const bool negated = skip_word("not");
  Expr* test = new_expr(ExprKind::kTest, line);
  test->name = expect_name();
  test->builtin = find_test(test->name);
  if (test->builtin == nullptr) fail_at(line, fmt::format("unknown test '{}'", test->name));
  ExprList args = {expr};
  if (is_op("(")) {
    call_args(*test, args);
  } else if (current_.type == TokenType::kString || current_.type == TokenType::kInteger ||
             current_.type == TokenType::kFloat || is_op("[") || is_op("{") ||
             (current_.type == TokenType::kName && !is_word({"else", "or", "and"}))) {
    if (is_word("is")) fail_at(line, "tests cannot be chained with 'is'");
    args.push_back(postfix(primary(false)));
  }
  test->args = arena_.copy_array(args);
  const Expr* result = finish(test);
  return negated ? new_expr(ExprKind::kNot, line, {result}) : result;
}

}  // namespace apr::jinja
