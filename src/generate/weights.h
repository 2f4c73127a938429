// Probabilities as integers. A candidate weighs floor(2^bits * e^x); integer sums do not depend on
// their order, so a serial loop and a parallel reduction choose the same token, and e^x uses only
// IEEE additions and multiplications, never the machine's libm.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace apr {

// Bits of the largest weight, so that n_candidates of them sum to less than 2^63.
inline int weight_bits(int64_t n_candidates) {
  constexpr int kMaxBits = 44;
  const int room = 62 - static_cast<int>(std::bit_width(static_cast<uint64_t>(n_candidates)));
  return room < kMaxBits ? room : kMaxBits;
}

// floor(2^bits * e^x) for x <= 0 (-inf gives 0), bits in [0, 44]. Relative error of e^x below
// 2^-50: |r| <= ln 2 / 2, and the first term left out is r^14 / 14! < 5e-18.
inline uint64_t weight_of(double x, int bits) {
  constexpr double kSmallest = -31.0;  // 2^44 * e^-31 < 1
  if (!(x > kSmallest)) {
    return 0;
  }
  constexpr double kLog2e = 1.4426950408889634, kLn2High = 6.93147180369123816490e-01,
                   kLn2Low = 1.90821492927058770002e-10;  // high part: 32 bits, n * high is exact
  const int n = static_cast<int>(x * kLog2e - 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  constexpr int kTerms = 13;
  double sum = 1.0;
  for (int term = kTerms; term > 0; --term) {
    sum = 1.0 + sum * (r / term);
  }
  return static_cast<uint64_t>(std::ldexp(sum, bits + n));
}

}  // namespace apr
