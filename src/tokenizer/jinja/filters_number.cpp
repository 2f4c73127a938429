// Filters on numbers.
#include <cmath>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/ops.h"
#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

// int(value) of a float: towards zero; nothing outside of 64 bits.
std::optional<int64_t> truncated(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!(value >= -kLimit && value < kLimit)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value int_filter(Runtime&, Value self, const Args& args) {
  const auto [fallback_arg, base_arg] = bind("int", args, {"default", "base"});
  const Value fallback = fallback_arg.missing() ? int_value(0) : fallback_arg;
  require_defined(self);
  if (self.is_int_like()) return int_value(self.as_int());
  std::optional<double> real;
  if (self.is(Type::kFloat)) real = self.real;
  if (self.is(Type::kString)) {
    if (const auto whole = parse_int(self.str->text, int_arg(base_arg, 10))) {
      return int_value(*whole);
    }
    real = parse_float(self.str->text);
  }
  if (!real || std::isnan(*real) || (std::isinf(*real) && self.is(Type::kString))) return fallback;
  const auto whole = truncated(*real);
  if (!whole) fail("int: the number {} does not fit 64 bits", float_text(*real));
  return int_value(*whole);
}

Value float_filter(Runtime&, Value self, const Args& args) {
  const auto [fallback_arg] = bind("float", args, {"default"});
  const Value fallback = fallback_arg.missing() ? float_value(0) : fallback_arg;
  require_defined(self);
  if (self.is_number()) return float_value(self.as_float());
  if (!self.is(Type::kString)) return fallback;
  const auto real = parse_float(self.str->text);
  return real ? float_value(*real) : fallback;
}

Value abs_filter(Runtime&, Value self, const Args& args) {
  bind_none("abs", args);
  require_defined(self);
  if (self.is(Type::kFloat)) return float_value(std::fabs(self.real));
  if (!self.is_int_like()) fail("bad operand type for abs(): '{}'", type_name(self));
  return self.as_int() < 0 ? negate(self, true) : int_value(self.as_int());
}

// round(value, precision) of Python for integers: half to even at 10^-precision.
Value round_int(int64_t value, int64_t precision) {
  if (precision >= 0) return int_value(value);
  if (precision < -18) return int_value(0);
  int64_t unit = 1;
  for (int64_t i = 0; i < -precision; ++i) unit *= 10;
  int64_t quotient = value / unit;
  const int64_t rest = std::abs(value % unit);
  if (rest > unit / 2 || (rest == unit / 2 && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  int64_t result = 0;
  if (__builtin_mul_overflow(quotient, unit, &result)) fail("round: integer overflow (64 bits)");
  return int_value(result);
}

// round(value, precision) of Python for floats: the correctly rounded decimal.
double round_float(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 320) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  return parse_float(fmt::format("{:.{}f}", value, precision)).value_or(value);
}

Value round_filter(Runtime&, Value self, const Args& args) {
  const auto [precision_arg, method_arg] = bind("round", args, {"precision", "method"});
  const Str* method_str = str_arg("round", method_arg);
  const std::string_view method = method_str == nullptr ? "common" : method_str->text;
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("round: method must be common, ceil or floor");
  }
  require_defined(self);
  if (!self.is_number()) fail("type {} doesn't define __round__ method", type_name(self));
  if (method == "common" && precision_arg.is(Type::kNone)) {
    const auto whole = truncated(std::nearbyint(self.as_float()));
    if (!whole) fail("round: the number {} has no integer of 64 bits", float_text(self.as_float()));
    return int_value(self.is_int_like() ? self.as_int() : *whole);
  }
  const int64_t precision = int_arg(precision_arg, 0);
  if (method == "common") {
    return self.is_int_like() ? round_int(self.as_int(), precision)
                              : float_value(round_float(self.real, precision));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_float() * unit;
  return float_value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr Builtin kNumberFilters[] = {
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
};

}  // namespace

std::span<const Builtin> number_filters() {
  return kNumberFilters;
}

}  // namespace apr::jinja
