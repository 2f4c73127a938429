// The arithmetic of sampling, one text for host and device: the same logits give the same token on
// both. Probabilities are integers: a candidate weighs floor(2^bits * e^x), and integer sums do not
// depend on their order, so a serial loop and a grid of blocks agree. Everything else is single
// IEEE operations on f64, never contracted, never the machine's libm.
#pragma once

#include "f16_value.cuh"
#include "platform.cuh"

namespace apr {

// Not inlined on the device: divisions in f64 are long.
#ifdef APR_DEVICE_CODE
#define APR_CALLED __device__ __noinline__
#else
#define APR_CALLED inline
#endif

constexpr float kLargestF32 = 3.402823466e+38f;

APR_DEVICE double mul_rn(double a, double b) {
#ifdef APR_DEVICE_CODE
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

APR_DEVICE double add_rn(double a, double b) {
#ifdef APR_DEVICE_CODE
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

// 2^exponent of a normal number.
APR_DEVICE double power_of_two(int exponent) {
  const uint64_t bits = static_cast<uint64_t>(1023 + exponent) << 52;
#ifdef APR_DEVICE_CODE
  return __longlong_as_double(static_cast<int64_t>(bits));
#else
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

APR_DEVICE uint32_t bits_of_f32(float value) {
#ifdef APR_DEVICE_CODE
  return __float_as_uint(value);
#else
  return f32_bits(value);
#endif
}

// Bits of the largest weight, so that n_candidates (at least 1) of them sum to less than 2^63.
APR_DEVICE int weight_bits(int64_t n_candidates) {
  constexpr int kMostBits = 44;
  int room = 62;
  for (uint64_t left = static_cast<uint64_t>(n_candidates); left != 0; left >>= 1) {
    --room;
  }
  return room < kMostBits ? room : kMostBits;
}

// floor(2^bits * e^x) for x <= 0 (-inf gives 0), bits in [0, 44]. Relative error of e^x below
// 2^-50: |r| <= ln 2 / 2, and the first term left out is r^14 / 14! < 5e-18.
APR_CALLED uint64_t weight_of(double x, int bits) {
  constexpr double kSmallest = -31.0;  // 2^44 * e^-31 < 1
  if (!(x > kSmallest)) {
    return 0;
  }
  constexpr double kLog2e = 1.4426950408889634, kLn2High = 6.93147180369123816490e-01,
                   kLn2Low = 1.90821492927058770002e-10;  // high part: 32 bits, n * high is exact
  const int n = static_cast<int>(add_rn(mul_rn(x, kLog2e), -0.5));
  const double r = add_rn(add_rn(x, -mul_rn(n, kLn2High)), -mul_rn(n, kLn2Low));
  constexpr int kTerms = 13;
  double sum = 1.0;
  for (int term = kTerms; term > 0; --term) {
    sum = add_rn(1.0, mul_rn(sum, r / term));
  }
  return static_cast<uint64_t>(mul_rn(sum, power_of_two(bits + n)));  // exact: bits + n >= -45
}

// What `top_p` of `total` asks of an integer sum: the least `reached` >= 1 for which
// double(reached) >= top_p * double(total). top_p in [0, 1), 1 <= total < 2^63.
APR_DEVICE uint64_t top_p_goal(double top_p, uint64_t total) {
  const double wanted = mul_rn(top_p, static_cast<double>(total));
  // Conversion moves a sum by 2^9 at most, so the answer lies in (wanted - 2^10, wanted + 1].
  uint64_t high = static_cast<uint64_t>(wanted) + 1;
  uint64_t low = high > 1026 ? high - 1026 : 0;  // does not reach it
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (static_cast<double>(middle) >= wanted) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}

// Where the logits of candidates stand before the temperature; weights of min_p and of the draw.
struct DrawWeights {
  double temperature, min_p;
  float best;  // the largest logit
  int bits;

  // At temperature 1, as the filters judge.
  APR_DEVICE uint64_t plain(float logit) const { return weight_of(distance(logit), bits); }

  // At the temperature; 0 for less than min_p times the best one's probability.
  APR_DEVICE uint64_t drawn(float logit) const {
    if (min_p > 0.0 && static_cast<double>(plain(logit)) < mul_rn(min_p, power_of_two(bits))) {
      return 0;
    }
    const double x = distance(logit);
    return weight_of(x == 0.0 ? 0.0 : x / temperature, bits);
  }

  APR_DEVICE double distance(float logit) const {
    return add_rn(static_cast<double>(logit), -static_cast<double>(best));
  }
};

// The logit of a token that the window of the penalties holds `n_seen` times; never NaN or +inf
// from a logit that is neither.
APR_CALLED float penalised(float logit, int64_t n_seen, double repeat, double presence,
                           double frequency) {
  double value = logit;
  value = value > 0.0 ? value / repeat : mul_rn(value, repeat);
  value = add_rn(value, -add_rn(mul_rn(static_cast<double>(n_seen), frequency), presence));
  if (value < -static_cast<double>(kLargestF32)) {
    return -f32_of_bits(0x7f800000u);
  }
  return value > static_cast<double>(kLargestF32) ? kLargestF32 : static_cast<float>(value);
}

// Philox4x32-10, the counter-based generator of Random123 (Salmon et al., SC 2011): the numbers of
// a step are a pure function of seed and step.
struct PhiloxBlock {
  uint32_t words[4];
};

APR_DEVICE PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter.words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter.words[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.words[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.words[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The 64 random bits of a sampling step: words 0 (high) and 1 (low) of the block whose counter is
// {step low, step high, 0, 0} and whose key is {seed low, seed high}.
APR_DEVICE uint64_t philox_u64(uint64_t seed, uint64_t step) {
  const PhiloxBlock block =
      philox4x32_10({{static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), 0, 0}},
                    static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return uint64_t{block.words[0]} << 32 | block.words[1];
}

// A draw from [0, total): the high 64 bits of bits * total.
APR_DEVICE uint64_t scale_to(uint64_t bits, uint64_t total) {
  const uint64_t low_low = (bits & 0xFFFFFFFF) * (total & 0xFFFFFFFF);
  const uint64_t high_low = (bits >> 32) * (total & 0xFFFFFFFF);
  const uint64_t low_high = (bits & 0xFFFFFFFF) * (total >> 32);
  const uint64_t middle = (low_low >> 32) + (high_low & 0xFFFFFFFF) + low_high;
  return (bits >> 32) * (total >> 32) + (high_low >> 32) + (middle >> 32);
}

}  // namespace apr
