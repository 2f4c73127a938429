// A parsed template: nodes in an arena, children before parents.
#pragma once

#include <span>
#include <string_view>

#include "tokenizer/jinja/value.h"

namespace apr::jinja {

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

enum class ExprKind : uint8_t {
  kConst,         // value
  kName,          // name
  kNamespaceRef,  // name.attribute as a target of `set`; attribute in value
  kList,          // args
  kTuple,         // args
  kDict,          // args: key, value, key, value, ...
  kAttr,          // args[0].name; name also in value
  kItem,          // args[0][args[1]]
  kSlice,         // args[0][args[1]:args[2]:args[3]], null where not given
  kCall,          // args[0](args[1..], named, *star, **star_star)
  kFilter,        // args[0] | builtin(args[1..], named, ...)
  kTest,          // args[0] is builtin(args[1..], named, ...)
  kCaptured,      // what a filter block captured
  kNot,           // args[0]
  kMinus,         // args[0]
  kPlus,          // args[0]
  kAnd,           // args[0], args[1]
  kOr,            // args[0], args[1]
  kCompare,       // args[0] ops[0] args[1] ops[1] args[2] ...
  kBinary,        // args[0] ops[0] args[1]
  kConcat,        // args[0] ~ args[1] ~ ...
  kConditional,   // args[0] if args[1] else args[2]; args[2] null where not given
};

struct Expr;
struct NamedExpr {
  std::string_view name;
  const Expr* value = nullptr;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int height = 1;  // levels of nodes below and including this one
  Value value;
  std::string_view name;
  std::span<const Expr*> args;
  std::span<NamedExpr> named;
  const Expr* star = nullptr;
  const Expr* star_star = nullptr;
  std::span<Op> ops;
  const Builtin* builtin = nullptr;
};

enum class StmtKind : uint8_t {
  kText,      // text
  kOutput,    // expr
  kDo,        // expr, its value unused
  kSet,       // target = expr
  kSetBlock,  // target = body, through expr (over kCaptured) where given
  kIf,        // branches, the last may have no condition
  kFor,       // target in expr if test: body, else else_body
  kMacro,     // name(params): body
  kWith,      // bindings: body
  kFilter,    // expr (over kCaptured) of body
  kScope,     // body, in a scope of its own
  kBreak,
  kContinue,
};

struct Branch {
  const Expr* condition = nullptr;
  std::span<const Stmt*> body;
};

struct Param {
  std::string_view name;
  const Expr* default_value = nullptr;
};

struct Binding {
  const Expr* target = nullptr;
  const Expr* value = nullptr;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  const Str* text = nullptr;
  std::string_view name;
  const Expr* expr = nullptr;
  const Expr* target = nullptr;
  const Expr* test = nullptr;
  std::span<const Stmt*> body;
  std::span<const Stmt*> else_body;
  std::span<Branch> branches;
  std::span<Param> params;
  std::span<Binding> bindings;
  bool reads_varargs = false;  // of a macro
  bool reads_kwargs = false;
};

}  // namespace apr::jinja
