// exp, sigmoid and SiLU of whole vectors, without libm.
#pragma once

#include "cpu/fast/isa/simd.h"

namespace apr::cpu::fast::APR_CPU_ISA {

// e^x within 2^-22 of the exact value, relative, where that is a normal number; within 2^-148
// where it is subnormal; inf above the range of f32, 0 below; NaN for NaN.
// With n = round(x / ln 2) and r = x - n ln 2, |r| <= 0.35: e^x = 2^n e^r; e^r by the Cephes
// polynomial of expf (degree 7, error below 2^-24), the rest is its rounding.
APR_ALWAYS_INLINE Vec exp(Vec x) {
  constexpr hn::RebindToSigned<F32> ints{};
  // The order of the operands keeps a NaN on every instruction set.
  x = hn::Max(broadcast(-104.0F), hn::Min(broadcast(89.0F), x));
  // Adding 1.5 * 2^23 rounds to the nearest integer, which is then in the low bits of the sum.
  const Vec magic = broadcast(12582912.0F);
  const Vec shifted = hn::Add(hn::Mul(x, broadcast(1.44269504088896341F)), magic);
  const Vec n = hn::Sub(shifted, magic);
  const auto n_bits = hn::Sub(hn::BitCast(ints, shifted), hn::BitCast(ints, magic));
  // ln 2 in two parts; n times the first is exact.
  Vec r = hn::Sub(x, hn::Mul(n, broadcast(0.693359375F)));
  r = hn::NegMulAdd(n, broadcast(-2.12194440e-4F), r);
  Vec p = broadcast(1.9875691500e-4F);
  p = hn::MulAdd(p, r, broadcast(1.3981999507e-3F));
  p = hn::MulAdd(p, r, broadcast(8.3334519073e-3F));
  p = hn::MulAdd(p, r, broadcast(4.1665795894e-2F));
  p = hn::MulAdd(p, r, broadcast(1.6666665459e-1F));
  p = hn::MulAdd(p, r, broadcast(5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), broadcast(1.0F));
  // 2^n in two factors, so that neither leaves the exponents of normal numbers.
  const auto half = hn::ShiftRight<1>(n_bits);
  const auto rest = hn::Sub(n_bits, half);
  const auto bias = hn::Set(ints, 127);
  const Vec scale0 = hn::BitCast(kF32, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Vec scale1 = hn::BitCast(kF32, hn::ShiftLeft<23>(hn::Add(rest, bias)));
  return hn::Mul(hn::Mul(p, scale0), scale1);
}

// 1 / (1 + e^-x), within 2^-21 relative.
APR_ALWAYS_INLINE Vec sigmoid(Vec x) {
  const Vec one = broadcast(1.0F);
  return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
}

// x * sigmoid(x), within 2^-20.8 relative.
APR_ALWAYS_INLINE Vec silu(Vec x) {
  return hn::Mul(x, sigmoid(x));
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
