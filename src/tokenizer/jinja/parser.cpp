#include "tokenizer/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja/builtins.h"

namespace apr::jinja {

void Parser::advance() {
  if (ahead_) {
    current_ = *ahead_;
    ahead_.reset();
  } else {
    current_ = lexer_.next();
  }
}

const Token& Parser::ahead() {
  if (!ahead_) ahead_ = lexer_.next();
  return *ahead_;
}

bool Parser::is_op(std::string_view text) const {
  return current_.type == TokenType::kOperator && current_.text == text;
}

bool Parser::is_word(std::string_view text) const {
  return current_.type == TokenType::kName && current_.text == text;
}

bool Parser::is_word(Words words) const {
  return std::any_of(words.begin(), words.end(), [&](auto word) { return is_word(word); });
}

bool Parser::skip_op(std::string_view text) {
  if (!is_op(text)) return false;
  advance();
  return true;
}

bool Parser::skip_word(std::string_view text) {
  if (!is_word(text)) return false;
  advance();
  return true;
}

void Parser::unexpected(std::string_view wanted) const {
  fail_at(current_.line, fmt::format("expected {}, found {}", wanted, describe(current_)));
}

void Parser::expect_op(std::string_view text) {
  if (!skip_op(text)) unexpected(fmt::format("'{}'", text));
}

std::string_view Parser::expect_name() {
  if (current_.type != TokenType::kName) unexpected("a name");
  const std::string_view name = current_.text;
  advance();
  return name;
}

void Parser::expect(TokenType type, std::string_view what) {
  if (current_.type != type) unexpected(what);
  advance();
}

std::span<const Stmt*> Parser::parse() {
  advance();
  return body({});
}

Stmt& Parser::new_stmt(StmtKind kind, int line) {
  Stmt stmt;
  stmt.kind = kind;
  stmt.line = line;
  return *arena_.create(stmt);
}

std::span<const Stmt*> Parser::body(Words ends) {
  const Nesting nesting(*this);
  StmtList stmts;
  while (current_.type != TokenType::kEnd) {
    const int line = current_.line;
    if (current_.type == TokenType::kData) {
      Stmt& text = new_stmt(StmtKind::kText, line);
      text.text = arena_.create(Str{current_.text, {}, Origin::kTemplate});
      stmts.push_back(&text);
      advance();
    } else if (current_.type == TokenType::kOutputBegin) {
      advance();
      Stmt& output = new_stmt(StmtKind::kOutput, line);
      output.expr = tuple(TupleOf::kExpressions);
      stmts.push_back(&output);
      expect(TokenType::kOutputEnd, "'}}'");
    } else {
      expect(TokenType::kTagBegin, "'{%'");
      if (is_word(ends)) return arena_.copy_array(stmts);
      if (const Stmt* stmt = statement()) stmts.push_back(stmt);
      expect(TokenType::kTagEnd, "'%}'");
    }
  }
  if (ends.size() > 0) unexpected(fmt::format("'{{% {} %}}'", *(ends.end() - 1)));
  return arena_.copy_array(stmts);
}

std::span<const Stmt*> Parser::body_until(Words ends) {
  skip_op(":");
  expect(TokenType::kTagEnd, "'%}'");
  return body(ends);
}

std::span<const Stmt*> Parser::block(std::string_view end) {
  const auto stmts = body_until({end});
  advance();
  return stmts;
}

const Stmt* Parser::statement() {
  const int line = current_.line;
  const std::string_view tag = expect_name();
  if (tag == "set") return set_statement();
  if (tag == "if") return if_statement();
  if (tag == "for") return for_statement();
  if (tag == "macro") return macro_statement();
  if (tag == "with") return with_statement();
  if (tag == "filter") return filter_statement();
  if (tag == "break") return jump_statement(StmtKind::kBreak);
  if (tag == "continue") return jump_statement(StmtKind::kContinue);
  if (tag == "do") {
    Stmt& stmt = new_stmt(StmtKind::kDo, line);
    stmt.expr = tuple(TupleOf::kExpressions);
    return &stmt;
  }
  if (tag == "generation") {
    Stmt& stmt = new_stmt(StmtKind::kScope, line);
    const int outer_loops = std::exchange(loop_depth_, 0);
    stmt.body = block("endgeneration");
    loop_depth_ = outer_loops;
    return &stmt;
  }
  constexpr std::string_view kKnown[] = {"extends", "include", "import", "from",  "block",
                                         "call",    "print",   "trans",  "debug", "autoescape"};
  if (std::find(std::begin(kKnown), std::end(kKnown), tag) != std::end(kKnown)) {
    fail_at(line, fmt::format("the tag '{}' is not supported", tag));
  }
  fail_at(line, fmt::format("unknown tag '{}'", tag));
}

const Stmt* Parser::set_statement() {
  const int line = current_.line;
  const Expr* to = target(TupleOf::kSetTargets);
  const bool is_block = !skip_op("=");
  Stmt& stmt = new_stmt(is_block ? StmtKind::kSetBlock : StmtKind::kSet, line);
  stmt.target = to;
  if (is_block) {
    if (is_op("|")) stmt.expr = filter_chain(new_expr(ExprKind::kCaptured, line), false);
    stmt.body = block("endset");
  } else {
    stmt.expr = tuple(TupleOf::kExpressions);
  }
  return &stmt;
}

const Stmt* Parser::if_statement() {
  Stmt& stmt = new_stmt(StmtKind::kIf, current_.line);
  std::vector<Branch> branches;
  while (true) {
    Branch branch;
    branch.condition = tuple(TupleOf::kNoConditionals);
    branch.body = body_until({"elif", "else", "endif"});
    branches.push_back(branch);
    if (skip_word("elif")) continue;
    if (skip_word("else")) branches.push_back({nullptr, body_until({"endif"})});
    advance();
    break;
  }
  stmt.branches = arena_.copy_array(branches);
  return &stmt;
}

const Stmt* Parser::for_statement() {
  Stmt& stmt = new_stmt(StmtKind::kFor, current_.line);
  stmt.target = target(TupleOf::kTargets, {"in"});
  if (!skip_word("in")) unexpected("'in'");
  stmt.expr = tuple(TupleOf::kNoConditionals, {"recursive"});
  if (skip_word("if")) stmt.test = expression();
  if (is_word("recursive")) fail_at(line(), "a 'recursive' loop is not supported");
  ++loop_depth_;
  stmt.body = body_until({"else", "endfor"});
  --loop_depth_;
  if (skip_word("else")) stmt.else_body = body_until({"endfor"});
  advance();
  return &stmt;
}

const Stmt* Parser::macro_statement() {
  Stmt& stmt = new_stmt(StmtKind::kMacro, current_.line);
  stmt.name = expect_name();
  Stmt* const outer_macro = std::exchange(macro_, &stmt);
  const int outer_loops = std::exchange(loop_depth_, 0);
  std::vector<Param> params;
  expect_op("(");
  while (!is_op(")")) {
    if (!params.empty()) expect_op(",");
    Param param;
    param.name = expect_name();
    if (skip_op("=")) {
      param.default_value = expression();
    } else if (!params.empty() && params.back().default_value != nullptr) {
      fail_at(line(), fmt::format("parameter '{}' without a default follows one with a default",
                                  param.name));
    }
    params.push_back(param);
  }
  advance();
  stmt.params = arena_.copy_array(params);
  stmt.body = block("endmacro");
  macro_ = outer_macro;
  loop_depth_ = outer_loops;
  return &stmt;
}

const Stmt* Parser::with_statement() {
  Stmt& stmt = new_stmt(StmtKind::kWith, current_.line);
  std::vector<Binding> bindings;
  while (current_.type != TokenType::kTagEnd) {
    if (!bindings.empty()) expect_op(",");
    Binding binding;
    binding.target = target(TupleOf::kTargets);
    expect_op("=");
    binding.value = expression();
    bindings.push_back(binding);
  }
  stmt.bindings = arena_.copy_array(bindings);
  stmt.body = block("endwith");
  return &stmt;
}

const Stmt* Parser::filter_statement() {
  Stmt& stmt = new_stmt(StmtKind::kFilter, current_.line);
  stmt.expr = filter_chain(new_expr(ExprKind::kCaptured, stmt.line), true);
  stmt.body = block("endfilter");
  return &stmt;
}

const Stmt* Parser::jump_statement(StmtKind kind) {
  if (loop_depth_ == 0) {
    fail_at(line(),
            fmt::format("'{}' outside of a loop", kind == StmtKind::kBreak ? "break" : "continue"));
  }
  return &new_stmt(kind, line());
}

}  // namespace apr::jinja
