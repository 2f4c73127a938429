// Arithmetic: 64-bit integers whose overflow is an error, floats, and + and * of sequences.
#include <cmath>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

const char* op_text(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    default:
      return "**";
  }
}

[[noreturn]] void overflow(Op op) {
  fail("integer overflow in '{}' (64 bits)", op_text(op));
}

int64_t checked_mul(int64_t a, int64_t b, Op op) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) overflow(op);
  return result;
}

Value int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return float_value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1) result = checked_mul(result, base, Op::kPow);
    exponent >>= 1;
    if (exponent == 0 || base == 0 || base == 1) break;
    base = checked_mul(base, base, Op::kPow);
  }
  return int_value(exponent > 0 ? result * base : result);
}

Value int_arithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow(op);
      return int_value(result);
    case Op::kSub:
      if (__builtin_sub_overflow(a, b, &result)) overflow(op);
      return int_value(result);
    case Op::kMul:
      return int_value(checked_mul(a, b, op));
    case Op::kDiv:
      if (b == 0) fail("division by zero");
      return float_value(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDiv:
      if (b == 0) fail("integer division or modulo by zero");
      if (b == -1) return int_arithmetic(Op::kSub, 0, a);
      return int_value(a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
    case Op::kMod:
      if (b == 0) fail("integer modulo by zero");
      if (b == -1) return int_value(0);
      return int_value(a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0));
    default:
      return int_power(a, b);
  }
}

// Python's float modulo: the sign of the divisor.
double float_mod(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod != 0 && (b < 0) != (mod < 0)) mod += b;
  return mod == 0 ? std::copysign(0.0, b) : mod;
}

Value float_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return float_value(a + b);
    case Op::kSub:
      return float_value(a - b);
    case Op::kMul:
      return float_value(a * b);
    case Op::kDiv:
      if (b == 0) fail("float division by zero");
      return float_value(a / b);
    case Op::kFloorDiv: {
      if (b == 0) fail("float floor division by zero");
      const double quotient = (a - float_mod(a, b)) / b;
      const double floored = std::floor(quotient);
      // The quotient is an integer up to rounding; as Python, the nearer one.
      return float_value(quotient - floored > 0.5 ? floored + 1 : floored);
    }
    case Op::kMod:
      if (b == 0) fail("float modulo");
      return float_value(float_mod(a, b));
    default: {
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) fail("complex numbers are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        fail("numerical result out of range");
      }
      return float_value(result);
    }
  }
}

bool is_list_or_tuple(const Value& value) {
  return value.is(Type::kList) &&
         (value.list->kind == ListKind::kList || value.list->kind == ListKind::kTuple);
}

Value concat_lists(Runtime& rt, const List& a, const List& b) {
  List* result = make_list(rt, a.kind, a.size + b.size, a.from_input || b.from_input);
  rt.step(static_cast<int64_t>((a.size + b.size) / 8));
  for (const Value& item : a.span()) push(rt, *result, item);
  for (const Value& item : b.span()) push(rt, *result, item);
  return list_value(result);
}

Value repeat_list(Runtime& rt, const List& list, int64_t n_times) {
  const uint64_t n = n_times > 0 ? static_cast<uint64_t>(n_times) : 0;
  size_t n_items = 0;
  if (__builtin_mul_overflow(list.size, n, &n_items)) overflow(Op::kMul);
  List* result = make_list(rt, list.kind, n_items, list.from_input);
  rt.step(static_cast<int64_t>(n_items / 8));
  while (result->size < n_items) {
    for (const Value& item : list.span()) push(rt, *result, item);
  }
  return list_value(result);
}

}  // namespace

Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b) {
  require_defined(a);
  if (op == Op::kMod && a.is(Type::kString)) return percent_format(rt, *a.str, b);
  require_defined(b);
  if (a.is_int_like() && b.is_int_like()) return int_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_float(), b.as_float());
  if (op == Op::kAdd) {
    if (a.is(Type::kString) && b.is(Type::kString)) {
      TextBuilder text(rt);
      text.add(*a.str);
      text.add(*b.str);
      return text.finish_value();
    }
    if (is_list_or_tuple(a) && is_list_or_tuple(b) && a.list->kind == b.list->kind) {
      return concat_lists(rt, *a.list, *b.list);
    }
    if (a.is(Type::kString) || is_list_or_tuple(a)) {
      fail("can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b), type_name(a));
    }
  }
  if (op == Op::kMul) {
    const Value& sequence = a.is_int_like() ? b : a;
    const Value& count = a.is_int_like() ? a : b;
    if (sequence.is(Type::kString) && count.is_int_like()) {
      TextBuilder text(rt);
      text.add_times(*sequence.str, count.as_int());
      return text.finish_value();
    }
    if (is_list_or_tuple(sequence) && count.is_int_like()) {
      return repeat_list(rt, *sequence.list, count.as_int());
    }
  }
  fail("unsupported operand type(s) for {}: '{}' and '{}'",
       op == Op::kPow ? "** or pow()" : op_text(op), type_name(a), type_name(b));
}

Value negate(const Value& value, bool minus) {
  require_defined(value);
  if (value.is_int_like()) {
    return minus ? int_arithmetic(Op::kSub, 0, value.as_int()) : int_value(value.as_int());
  }
  if (!value.is(Type::kFloat)) {
    fail("bad operand type for unary {}: '{}'", minus ? '-' : '+', type_name(value));
  }
  return minus ? float_value(-value.real) : value;
}

}  // namespace apr::jinja
