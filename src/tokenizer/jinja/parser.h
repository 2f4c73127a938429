// Parses template text into statements; follows the grammar of Jinja2 3.1.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/runtime.h"

namespace apr::jinja {

class Parser {
 public:
  // `source` is normalized; it and `arena` outlive the statements.
  Parser(std::string_view source, const Limits& limits, Arena& arena)
      : lexer_(source, arena), arena_(arena), limits_(limits) {}

  // Throws apr::Error kInvalidFormat naming the line and the construct, Fault for memory.
  std::span<const Stmt*> parse();

  int line() const { return current_.line; }
  // Names of variables that the template reads.
  std::set<std::string, std::less<>> take_reads() { return std::move(reads_); }

 private:
  using Words = std::initializer_list<std::string_view>;
  using ExprList = std::vector<const Expr*>;
  using StmtList = std::vector<const Stmt*>;
  class Nesting;

  // Tokens.
  void advance();
  const Token& ahead();
  bool is_op(std::string_view text) const;
  bool is_word(std::string_view text) const;
  bool is_word(Words words) const;
  bool skip_op(std::string_view text);
  bool skip_word(std::string_view text);
  void expect_op(std::string_view text);
  std::string_view expect_name();
  void expect(TokenType type, std::string_view what);
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Statements (parser.cpp).
  std::span<const Stmt*> body(Words ends);
  std::span<const Stmt*> body_until(Words ends);  // from "%}" on; stops at the name of the end tag
  std::span<const Stmt*> block(std::string_view end);  // a whole body and its end tag's name
  Stmt& new_stmt(StmtKind kind, int line);
  const Stmt* statement();
  const Stmt* set_statement();
  const Stmt* if_statement();
  const Stmt* for_statement();
  const Stmt* macro_statement();
  const Stmt* with_statement();
  const Stmt* filter_statement();
  const Stmt* jump_statement(StmtKind kind);

  // Expressions (parser_expr.cpp).
  enum class TupleOf : uint8_t { kExpressions, kNoConditionals, kTargets, kSetTargets };
  Expr* new_expr(ExprKind kind, int line, const ExprList& args = {});
  Expr* finish(Expr* expr) const;
  const Expr* tuple(TupleOf of, Words ends = {}, bool in_parentheses = false);
  const Expr* target(TupleOf of, Words ends = {});
  const Expr* expression();
  const Expr* or_expression();
  const Expr* and_expression();
  const Expr* not_expression();
  const Expr* compare();
  const Expr* sum();
  const Expr* concat();
  const Expr* product();
  const Expr* power();
  const Expr* unary(bool with_filter);
  const Expr* primary(bool allow_namespace);
  const Expr* list_literal();
  const Expr* dict_literal();
  const Expr* postfix(const Expr* expr);
  const Expr* subscript(const Expr* expr);
  const Expr* filters_and_tests(const Expr* expr);
  const Expr* filter_chain(const Expr* expr, bool inline_start);
  const Expr* test(const Expr* expr);
  void call_args(Expr& call, ExprList& args);
  const Expr* call(const Expr* callee);
  void check_named_filter(const Expr& filter) const;
  const Expr* constant(int line, Value value);
  Value string_constant(std::string_view text);

  Lexer lexer_;
  Arena& arena_;
  Limits limits_;
  Token current_;
  std::optional<Token> ahead_;
  std::set<std::string, std::less<>> reads_;
  bool in_target_ = false;  // names are set, not read
  int depth_ = 0;
  int loop_depth_ = 0;     // loops around, inside of the macro
  Stmt* macro_ = nullptr;  // the innermost macro around
};

// One level of nesting while it lives.
class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (parser.depth_ >= parser.limits_.max_depth) {
      fail_at(parser.line(),
              "nesting deeper than the bound of " + std::to_string(parser.limits_.max_depth));
    }
    ++parser.depth_;
  }
  ~Nesting() { --parser_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace apr::jinja
