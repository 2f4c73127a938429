// Attention problems: what goes in, what the reference makes of it, and how far a result may be
// off.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "apr/model.h"
#include "cpu/reference/ops.h"
#include "support/quant_encode.h"

namespace apr::test {

inline constexpr float kAttentionEps = 1e-6F;

enum class AttentionInputs {
  kRandom,  // normal deviates: every key has its share of the result
  kRising,  // scores rise from key to key of the step, so that the last one seen decides alone
};

struct AttentionCase {
  int64_t head_dim = 128, n_kv_heads = 2, group = 2;
  int64_t n_tokens = 1, position = 0;
  bool f32_cache = false, norms = false, gate = false;
  AttentionInputs inputs = AttentionInputs::kRandom;
  int64_t score_budget_bytes = int64_t{256} << 20;
};

inline std::string describe(const AttentionCase& c) {
  return fmt::format("head_dim {} kv heads {} group {} tokens {} position {} {}{}{}{}", c.head_dim,
                     c.n_kv_heads, c.group, c.n_tokens, c.position, c.f32_cache ? "f32" : "f16",
                     c.norms ? " norms" : "", c.gate ? " gate" : "",
                     c.inputs == AttentionInputs::kRising ? " rising" : "");
}

inline ModelDesc desc_of(const AttentionCase& c) {
  ModelDesc desc;
  desc.attention = {c.n_kv_heads * c.group, c.n_kv_heads, c.head_dim, false, c.norms, c.gate};
  // Partial rotation where there is a gate, as in the hybrids.
  desc.rope.n_rot = c.gate ? c.head_dim / 4 : c.head_dim;
  for (int64_t pair = 0; pair < desc.rope.n_rot / 2; ++pair) {
    desc.rope.inv_freq.push_back(static_cast<float>(
        std::pow(1e6, -2.0 * static_cast<double>(pair) / static_cast<double>(desc.rope.n_rot))));
  }
  return desc;
}

// Host copies of all that goes in, and of what the reference makes of it.
struct AttentionProblem {
  AttentionCase c;
  ModelDesc desc;
  int64_t n_heads, kv_dim, q_dim, n_keys, context;
  std::vector<float> q_in;              // [n_tokens, n_heads, 1 or 2 (gate), head_dim]
  std::vector<float> k, v;              // [n_tokens, kv_dim]
  std::vector<float> q_norm, k_norm;    // [head_dim]
  std::vector<float> k_cache, v_cache;  // [context, kv_dim]; NaN from `position` on
  std::vector<float> q, k_new;          // normed and rotated
  float scale;

  explicit AttentionProblem(const AttentionCase& of) : c(of), desc(desc_of(of)) {
    n_heads = c.n_kv_heads * c.group;
    kv_dim = c.n_kv_heads * c.head_dim;
    q_dim = n_heads * c.head_dim;
    n_keys = c.position + c.n_tokens;
    context = n_keys + 70;  // more than a tile beyond
    scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
    std::minstd_rand random(static_cast<unsigned>(1 + c.head_dim + 31 * c.n_tokens + c.position));
    std::normal_distribution<float> normal;
    const auto deviates = [&](int64_t n) {
      std::vector<float> values(static_cast<size_t>(n));
      std::generate(values.begin(), values.end(), [&] { return normal(random); });
      return values;
    };
    const int64_t parts = c.gate ? 2 : 1;
    q_in = deviates(c.n_tokens * q_dim * parts);
    k = deviates(c.n_tokens * kv_dim);
    v = deviates(c.n_tokens * kv_dim);
    q_norm = deviates(c.head_dim);
    k_norm = deviates(c.head_dim);
    k_cache = deviates(context * kv_dim);
    v_cache = deviates(context * kv_dim);
    if (!c.f32_cache) {
      for (std::vector<float>* cache : {&k_cache, &v_cache}) {
        for (float& value : *cache) {
          value = from_f16(to_f16(value));
        }
      }
    }
    if (c.inputs == AttentionInputs::kRising) {
      rise();
    }
    for (std::vector<float>* cache : {&k_cache, &v_cache}) {
      std::fill(cache->begin() + c.position * kv_dim, cache->end(), std::nanf(""));
    }
    norm_and_rotate();
  }

  // Only one element of q and k is not zero, which turns slowly or not at all: scores rise by 8
  // from key to key of the step; those of the keys before it are 0.
  void rise() {
    const int64_t slow = desc.rope.n_rot < c.head_dim ? c.head_dim - 1 : desc.rope.n_rot / 2 - 1;
    std::fill(k_cache.begin(), k_cache.end(), 0.0F);
    const int64_t parts = c.gate ? 2 : 1;
    for (int64_t token = 0; token < c.n_tokens; ++token) {
      for (int64_t head = 0; head < n_heads; ++head) {
        float* row = &q_in[static_cast<size_t>((token * n_heads + head) * parts * c.head_dim)];
        std::fill(row, row + c.head_dim, 0.0F);
        row[slow] = 8.0F / scale;
      }
      for (int64_t head = 0; head < c.n_kv_heads; ++head) {
        float* row = &k[static_cast<size_t>(token * kv_dim + head * c.head_dim)];
        std::fill(row, row + c.head_dim, 0.0F);
        row[slow] = static_cast<float>(token + 1);
      }
    }
  }

  void norm_and_rotate() {
    const int64_t parts = c.gate ? 2 : 1;
    for (int64_t row = 0; row < c.n_tokens * n_heads; ++row) {
      const float* from = &q_in[static_cast<size_t>(row * parts * c.head_dim)];
      q.insert(q.end(), from, from + c.head_dim);
    }
    k_new = k;
    const auto norm = [&](std::vector<float>& x, const std::vector<float>& weight) {
      if (c.norms) {
        cpu::reference::rms_norm({x.data(), weight.data(),
                                  static_cast<int64_t>(x.size()) / c.head_dim, c.head_dim,
                                  kAttentionEps, x.data()});
      }
    };
    norm(q, q_norm);
    norm(k_new, k_norm);
    const auto rotate = [&](std::vector<float>& x, int64_t heads) {
      cpu::reference::rope({x.data(), c.n_tokens, heads, c.head_dim, desc.rope.n_rot, c.position,
                            desc.rope.inv_freq.data(), 1.0F, x.data()});
    };
    rotate(q, n_heads);
    rotate(k_new, c.n_kv_heads);
  }

  // With the cache as the GPU left it, [n_keys, kv_dim] each.
  std::vector<float> expected(const std::vector<float>& keys,
                              const std::vector<float>& values) const {
    std::vector<float> y(static_cast<size_t>(c.n_tokens * q_dim));
    std::vector<std::future<void>> rows;
    for (int64_t token = 0; token < c.n_tokens; ++token) {
      const auto run = [&, token] {
        cpu::reference::attention({q.data() + token * q_dim, keys.data(), values.data(), 1,
                                   c.position + token, n_heads, c.n_kv_heads, c.head_dim, scale,
                                   y.data() + token * q_dim});
      };
      rows.push_back(std::async(c.n_tokens * n_keys > 4096 && token % 16 != 0
                                    ? std::launch::async
                                    : std::launch::deferred,
                                run));
    }
    for (auto& row : rows) {
      row.get();
    }
    if (c.gate) {
      for (int64_t row = 0; row < c.n_tokens * n_heads; ++row) {
        const float* gate = &q_in[static_cast<size_t>((2 * row + 1) * c.head_dim)];
        cpu::reference::sigmoid_gate({&y[static_cast<size_t>(row * c.head_dim)], gate, c.head_dim,
                                      &y[static_cast<size_t>(row * c.head_dim)]});
      }
    }
    return y;
  }
};

inline std::vector<uint16_t> f16_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(),
                 [](float value) { return std::isnan(value) ? 0x7e00 : to_f16(value); });
  return bits;
}

// What the cache must hold: what was there before, the step's rows, and behind them still nothing.
// The step's rows are within 2^-18 of the largest value of their head (norm: 3 roundings and a sum;
// rotation: two products, sines to about an ulp) and a rounding to f16.
inline void check_cache(const AttentionProblem& p, const std::vector<float>& before,
                        const std::vector<float>& wanted_new, const std::vector<float>& found,
                        const char* name) {
  const auto first = static_cast<size_t>(p.c.position * p.kv_dim);
  const auto end = static_cast<size_t>(p.n_keys * p.kv_dim);
  for (size_t elem = 0; elem < found.size(); ++elem) {
    if (elem < first) {
      ASSERT_EQ(found[elem], before[elem]) << name << " element " << elem << " was overwritten";
    } else if (elem >= end) {
      ASSERT_TRUE(std::isnan(found[elem])) << name << " element " << elem << " was written";
    } else {
      const size_t dim = static_cast<size_t>(p.c.head_dim);
      const size_t head = (elem - first) / dim * dim;
      float largest = 0.0F;
      for (size_t other = head; other < head + dim; ++other) {
        largest = std::max(largest, std::abs(wanted_new[other]));
      }
      const float wanted = wanted_new[elem - first];
      const float rounding = p.c.f32_cache ? 0.0F : std::abs(wanted) * 0x1p-11F + 0x1p-25F;
      ASSERT_LE(std::abs(found[elem] - wanted), rounding * 1.001F + largest * 0x1p-18F)
          << name << " element " << elem << ": " << found[elem] << ", wanted " << wanted;
    }
  }
}

inline float norm_of(const float* x, int64_t n) {
  double sum = 0.0;
  for (int64_t elem = 0; elem < n; ++elem) {
    sum += static_cast<double>(x[elem]) * x[elem];
  }
  return static_cast<float>(std::sqrt(sum));
}

// Bounds of one element of y. A score is off by at most d = scale |q| |k| (r + head_dim 2^-22):
// r = 2^-11 where q is rounded to f16, else 0, the other part for sums in f32 that may truncate and
// for q itself, which two programs norm and rotate. Weights are then off by a factor of at most
// e^(2 d), and by 2^-11 where they are rounded to f16 (numerator alone), by n_keys 2^-24 for their
// sums, by 2^-20 for exponentials. So |y - reference| <= (e^(2 d) - 1 + ...) max|v|; the gate
// shrinks it.
// Errors of different keys are independent and mostly cancel: their root mean square over the
// result is below 2^-10 of the result's (f16: 2^-11 / sqrt(3) from q and weights each), 2^-16
// (f32).
inline void check_result(const AttentionProblem& p, const std::vector<float>& keys,
                         const std::vector<float>& values, const std::vector<float>& y) {
  const AttentionCase& c = p.c;
  const std::vector<float> expected = p.expected(keys, values);
  float longest_key = 0.0F, largest_value = 0.0F;
  for (int64_t row = 0; row < p.n_keys * c.n_kv_heads; ++row) {
    longest_key =
        std::max(longest_key, norm_of(&keys[static_cast<size_t>(row * c.head_dim)], c.head_dim));
  }
  for (size_t elem = 0; elem < static_cast<size_t>(p.n_keys * p.kv_dim); ++elem) {
    largest_value = std::max(largest_value, std::abs(values[elem]));
  }
  const double rounding = c.f32_cache ? 0.0 : 0x1p-11;
  double error_square = 0.0, expected_square = 0.0;
  ASSERT_EQ(y.size(), expected.size());
  for (size_t elem = 0; elem < y.size(); ++elem) {
    const size_t row = elem / static_cast<size_t>(c.head_dim);
    const double d = static_cast<double>(p.scale) *
                     norm_of(&p.q[row * static_cast<size_t>(c.head_dim)], c.head_dim) *
                     longest_key * (rounding + static_cast<double>(c.head_dim) * 0x1p-22);
    const double bound =
        (std::expm1(2 * d) + rounding + static_cast<double>(p.n_keys) * 0x1p-24 + 0x1p-20) *
        largest_value;
    const double error = std::abs(static_cast<double>(y[elem]) - expected[elem]);
    ASSERT_LE(error, bound) << "row " << row << " (token, head) element "
                            << elem % static_cast<size_t>(c.head_dim) << ": " << y[elem]
                            << ", reference " << expected[elem];
    error_square += error * error;
    expected_square += static_cast<double>(expected[elem]) * expected[elem];
  }
  EXPECT_LE(std::sqrt(error_square / expected_square), c.f32_cache ? 0x1p-16 : 0x1p-10);
}

// A cache of f16, as f32.
inline std::vector<float> f32_of(const std::vector<uint16_t>& bits) {
  std::vector<float> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), from_f16);
  return values;
}

}  // namespace apr::test
