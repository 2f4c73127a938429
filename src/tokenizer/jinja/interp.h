// Evaluates a parsed template.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

// Names set in one scope, the latest first.
struct Variable {
  std::string_view name;
  Value value;
  Variable* next = nullptr;
};

struct Scope {
  Scope* parent = nullptr;
  Variable* variables = nullptr;
};

// The state of a `for`. Items are taken one by one, as Jinja does: the filter of the loop may
// depend on what its body changed.
struct Loop {
  std::span<const Value> source;
  size_t next_source = 0;
  const Stmt* statement = nullptr;
  Scope* scope = nullptr;      // around the loop
  bool filtered = false;       // items of `source` must pass the loop's filter still
  std::optional<Value> after;  // taken ahead
  std::optional<int64_t> length;
  int64_t index0 = -1;
  Value current;
  Value before;
  Value changed;  // what loop.changed() saw last, a tuple
};

class Interp {
 public:
  // `used_bytes` of the memory bound are taken already.
  Interp(const Limits& limits, int64_t used_bytes) : rt_(limits, used_bytes) {}

  // Throws apr::Error kInvalidFormat.
  std::vector<TextPiece> render(std::span<const Stmt* const> body,
                                const nlohmann::ordered_json& input);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  using Body = std::span<const Stmt* const>;

  void mark_token_variables();

  // Statements (interp.cpp).
  Flow run(Body body);
  Flow run(const Stmt& stmt);
  Flow run_in(Scope* scope, Body body);
  Flow run_if(const Stmt& stmt);
  Flow run_for(const Stmt& stmt);
  Flow run_with(const Stmt& stmt);
  Flow run_captured(const Stmt& stmt);  // set blocks and filter blocks
  Flow capture(Scope* scope, Body body, const Str*& text);
  void assign(const Expr& target, const Value& value);
  void define(std::string_view name, const Value& value);
  Scope* new_scope(Scope* parent);
  Value lookup(std::string_view name);

  // Loops (interp_loop.cpp).
  std::optional<Value> take(Loop& loop);
  bool peek(Loop& loop);
  int64_t loop_length(Loop& loop);
  Value loop_attr(Loop& loop, const Str& name);

  // Expressions (interp_expr.cpp).
  Value eval(const Expr& expr);
  Value eval_optional(const Expr* expr);
  Value eval_node(const Expr& expr);
  Value eval_list(const Expr& expr, ListKind kind);
  Value eval_dict(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_attr(const Expr& expr);
  Value eval_item(const Expr& expr);
  Value eval_conditional(const Expr& expr);

  // Calls (interp_call.cpp). The arguments live as long as the call.
  struct CallArgs {
    std::vector<Value> positional;
    std::vector<NamedArg> named;
    Args args() const { return {positional, named}; }
  };
  CallArgs eval_args(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_builtin(const Expr& expr);
  Value call_macro(const Macro& macro, const CallArgs& args);

  Runtime rt_;
  Scope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
  Dict* input_ = nullptr;
  Value captured_;  // what kCaptured stands for
};

}  // namespace apr::jinja
