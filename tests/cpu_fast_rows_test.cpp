#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/fast/kernel_table.h"
#include "cpu/reference/ops.h"
#include "support/cpu_ops.h"

namespace apr::cpu {
namespace {

using test::for_each_isa;
using test::kF32Rounding;
using test::Random;
using test::same_bits;
using test::unwritten;
using test::within;

constexpr int64_t kDims[] = {1, 3, 16, 64, 100, 896, 2049};
constexpr int64_t kRowCounts[] = {1, 2, 3, 7, 64, 65};

// A norm: the sum of squares has chains of dim / 4 products and sums (4 lanes, rounded apart) and 4
// levels of the tree, and its relative error is halved by the root; then the rounding of the root
// itself and three products, for both sides.
double norm_bound(int64_t dim) {
  return 1.01 * kF32Rounding * ((2.0 * (static_cast<double>(dim) / 4.0 + 1.0) + 4.0) / 2.0 + 8.0);
}

// sigmoid and SiLU: 2^-20.8 of cpu/fast/isa/math.h and five roundings of libm and products; below
// the normal numbers, where 1 / e^-x has lost bits or e^-x has overflowed, 2^-126 times the
// factors.
double gated_bound(double expected, double factors) {
  return 0x1p-20 * std::abs(expected) + 0x1p-126 * std::abs(factors);
}

TEST(FastExp, StaysWithinItsBound) {
  std::vector<float> x;
  for (double value = -110.0; value < 92.0; value += 0.000913) {
    x.push_back(static_cast<float>(value));
  }
  for (const float value :
       {0.0F, -0.0F, 88.7228F, 88.7229F, -87.33654F, -103.9F, 1e-10F, -1e-40F}) {
    x.push_back(value);
  }
  for_each_isa([&] {
    std::vector<float> y(x.size());
    fast::kernels().exp(x.data(), static_cast<int64_t>(x.size()), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      if (exact > static_cast<double>(std::numeric_limits<float>::max()) * (1.0 - 0x1p-22)) {
        EXPECT_GE(y[i], std::numeric_limits<float>::max() * 0.999F) << x[i];
      } else {
        EXPECT_LE(std::abs(static_cast<double>(y[i]) - exact), std::max(exact * 0x1p-22, 0x1p-148))
            << x[i];
      }
    }
  });
}

TEST(FastExp, TreatsTheEndsOfTheRange) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {inf, -inf, std::nanf(""), 0.0F, 89.0F, -104.0F};
  for_each_isa([&] {
    std::vector<float> y(x.size());
    fast::kernels().exp(x.data(), static_cast<int64_t>(x.size()), y.data());
    EXPECT_EQ(y[0], inf);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 1.0F);
    EXPECT_EQ(y[4], inf);
    EXPECT_EQ(y[5], 0.0F);
  });
}

// Runs `op(first_row, n_rows, pool, y)` (the fast op) over the rows in calls of several sizes and
// on several pools: the bits must not change. Returns the result of one call.
template <class Op>
std::vector<float> same_in_any_call(int64_t n_rows, int64_t row_elems, const Op& op) {
  std::vector<float> whole = unwritten(n_rows * row_elems);
  ThreadPool one(1);
  op(int64_t{0}, n_rows, one, whole.data());
  for (int n_threads = 2; n_threads <= 4; ++n_threads) {
    ThreadPool pool(n_threads);
    std::vector<float> again = unwritten(n_rows * row_elems);
    op(int64_t{0}, n_rows, pool, again.data());
    EXPECT_TRUE(same_bits(again, whole)) << n_threads << " threads";
  }
  for (const int64_t n_part : {1, 2, 3, 7, 64}) {
    std::vector<float> parts = unwritten(n_rows * row_elems);
    for (int64_t row = 0; row < n_rows; row += n_part) {
      op(row, std::min(n_part, n_rows - row), one, parts.data() + row * row_elems);
    }
    EXPECT_TRUE(same_bits(parts, whole)) << n_part << " rows a call";
  }
  return whole;
}

TEST(FastRmsNorm, StaysWithinTheBoundInAnyCall) {
  for_each_isa([&] {
    for (const int64_t dim : kDims) {
      for (const int64_t n_rows : kRowCounts) {
        Random random(1);
        const auto x = random.floats(n_rows * dim, -3.0F, 3.0F), weight = random.floats(dim);
        std::vector<float> expected = unwritten(n_rows * dim);
        reference::rms_norm({x.data(), weight.data(), n_rows, dim, 1e-6F, expected.data()});
        const auto found =
            same_in_any_call(n_rows, dim, [&](int64_t row, int64_t n, ThreadPool& pool, float* y) {
              fast::rms_norm({x.data() + row * dim, weight.data(), n, dim, 1e-6F, y}, pool);
            });
        EXPECT_TRUE(within(
            found, expected,
            [&](size_t i) { return norm_bound(dim) * std::abs(static_cast<double>(expected[i])); }))
            << n_rows << " rows of " << dim;
      }
    }
  });
}

TEST(FastL2Norm, StaysWithinTheBoundInAnyCall) {
  for_each_isa([&] {
    for (const int64_t dim : {1, 20, 64, 128}) {
      const int64_t n_rows = 65, n_heads = 3, stride = n_heads * dim + 11;
      Random random(2);
      const auto x = random.floats(n_rows * stride, -3.0F, 3.0F);
      std::vector<float> expected = unwritten(n_rows * n_heads * dim);
      reference::l2_norm({x.data(), n_rows, n_heads, dim, stride, 1e-6F, expected.data()});
      const auto found = same_in_any_call(
          n_rows, n_heads * dim, [&](int64_t row, int64_t n, ThreadPool& pool, float* y) {
            fast::l2_norm({x.data() + row * stride, n, n_heads, dim, stride, 1e-6F, y}, pool);
          });
      EXPECT_TRUE(within(
          found, expected,
          [&](size_t i) { return norm_bound(dim) * std::abs(static_cast<double>(expected[i])); }))
          << "heads of " << dim;
    }
  });
}

TEST(FastGatedRmsNorm, StaysWithinTheBoundInAnyCall) {
  for_each_isa([&] {
    for (const int64_t dim : kDims) {
      const int64_t n_rows = 65;
      Random random(3);
      const auto x = random.floats(n_rows * dim, -3.0F, 3.0F), weight = random.floats(dim);
      const auto gate = random.floats(n_rows * dim, -30.0F, 30.0F);
      std::vector<float> expected = unwritten(n_rows * dim);
      reference::gated_rms_norm(
          {x.data(), gate.data(), weight.data(), n_rows, dim, 1e-6F, expected.data()});
      const auto found =
          same_in_any_call(n_rows, dim, [&](int64_t row, int64_t n, ThreadPool& pool, float* y) {
            fast::gated_rms_norm(
                {x.data() + row * dim, gate.data() + row * dim, weight.data(), n, dim, 1e-6F, y},
                pool);
          });
      EXPECT_TRUE(within(found, expected,
                         [&](size_t i) {
                           return norm_bound(dim) * std::abs(static_cast<double>(expected[i])) +
                                  gated_bound(static_cast<double>(expected[i]), 30.0 * 3.0);
                         }))
          << "rows of " << dim;
    }
  });
}

TEST(FastBinaryOps, StayWithinTheirBoundsInAnyCall) {
  for_each_isa([&] {
    for (const int64_t dim : kDims) {
      const int64_t n_rows = 65;
      Random random(4);
      const auto a = random.floats(n_rows * dim, -100.0F, 100.0F);
      const auto b = random.floats(n_rows * dim, -100.0F, 100.0F);
      const auto check = [&](auto fast_op, auto reference_op, bool is_exact) {
        std::vector<float> expected = unwritten(n_rows * dim);
        reference_op({a.data(), b.data(), n_rows * dim, expected.data()});
        const auto found =
            same_in_any_call(n_rows, dim, [&](int64_t row, int64_t n, ThreadPool& pool, float* y) {
              fast_op({a.data() + row * dim, b.data() + row * dim, n * dim, y}, pool);
            });
        EXPECT_TRUE(within(found, expected, [&](size_t i) {
          return is_exact ? 0.0
                          : gated_bound(static_cast<double>(expected[i]),
                                        static_cast<double>(a[i]) * static_cast<double>(b[i]));
        }));
      };
      check(fast::add, reference::add, true);
      check(fast::swiglu, reference::swiglu, false);
      // y = a * sigmoid(b): its factor is a alone, which the bound's a * b exceeds where |b| >= 1;
      // below, the sigmoid is a normal number and the relative part holds.
      check(fast::sigmoid_gate, reference::sigmoid_gate, false);
    }
  });
}

TEST(FastBinaryOps, WorkInPlace) {
  for_each_isa([&] {
    ThreadPool pool(2);
    Random random(5);
    const auto a = random.floats(20001), b = random.floats(20001);
    std::vector<float> expected = unwritten(20001);
    fast::add({a.data(), b.data(), 20001, expected.data()}, pool);
    std::vector<float> left(a), right(b);
    fast::add({left.data(), b.data(), 20001, left.data()}, pool);
    fast::add({a.data(), right.data(), 20001, right.data()}, pool);
    EXPECT_TRUE(same_bits(left, expected));
    EXPECT_TRUE(same_bits(right, expected));
  });
}

TEST(FastRowGate, StaysWithinTheBoundInAnyCall) {
  for_each_isa([&] {
    for (const int64_t dim : kDims) {
      const int64_t n_rows = 65;
      Random random(6);
      const auto x = random.floats(n_rows * dim), g = random.floats(n_rows, -40.0F, 40.0F);
      std::vector<float> expected = unwritten(n_rows * dim);
      reference::row_gate({x.data(), g.data(), n_rows, dim, expected.data()});
      const auto found =
          same_in_any_call(n_rows, dim, [&](int64_t row, int64_t n, ThreadPool& pool, float* y) {
            fast::row_gate({x.data() + row * dim, g.data() + row, n, dim, y}, pool);
          });
      EXPECT_TRUE(within(found, expected, [&](size_t i) {
        return gated_bound(static_cast<double>(expected[i]), static_cast<double>(x[i]));
      }));
    }
  });
}

TEST(FastRope, EqualsTheReferenceBitForBitInAnyCall) {
  for (const auto& dims : {std::pair<int64_t, int64_t>{64, 64}, {128, 32}, {20, 10}, {2, 2}}) {
    const int64_t head_dim = dims.first, n_rot = dims.second;
    for (const int64_t first : {0, 20000, 1000000}) {
      const int64_t n_rows = 65, row_elems = 3 * head_dim;
      Random random(7);
      const auto x = random.floats(n_rows * row_elems);
      std::vector<float> inv_freq(static_cast<size_t>(n_rot / 2));
      for (size_t pair = 0; pair < inv_freq.size(); ++pair) {
        inv_freq[pair] =
            std::pow(1e6F, -2.0F * static_cast<float>(pair) / static_cast<float>(n_rot));
      }
      std::vector<float> expected = unwritten(n_rows * row_elems);
      reference::rope(
          {x.data(), n_rows, 3, head_dim, n_rot, first, inv_freq.data(), 1.1F, expected.data()});
      const auto found = same_in_any_call(
          n_rows, row_elems, [&](int64_t row, int64_t n, ThreadPool& pool, float* y) {
            fast::rope({x.data() + row * row_elems, n, 3, head_dim, n_rot, first + row,
                        inv_freq.data(), 1.1F, y},
                       pool);
          });
      EXPECT_TRUE(same_bits(found, expected)) << "heads of " << head_dim << " from " << first;
      std::vector<float> in_place(x);
      ThreadPool pool(2);
      fast::rope({in_place.data(), n_rows, 3, head_dim, n_rot, first, inv_freq.data(), 1.1F,
                  in_place.data()},
                 pool);
      EXPECT_TRUE(same_bits(in_place, expected));
    }
  }
}

TEST(FastMoves, EqualTheReferenceBitForBit) {
  ThreadPool pool(2);
  for (const int64_t n_tokens : kRowCounts) {
    Random random(8);
    const int64_t n_heads = 3, dim = 20, elems = n_tokens * n_heads * dim;
    const auto x = random.floats(2 * elems);

    std::vector<float> q = unwritten(elems), gate(q), expected_q(q), expected_gate(q);
    fast::split_heads({x.data(), n_tokens, n_heads, dim, q.data(), gate.data()}, pool);
    reference::split_heads(
        {x.data(), n_tokens, n_heads, dim, expected_q.data(), expected_gate.data()});
    EXPECT_TRUE(same_bits(q, expected_q));
    EXPECT_TRUE(same_bits(gate, expected_gate));

    std::vector<float> k_cache = unwritten(elems + 10 * n_heads * dim), v_cache(k_cache);
    std::vector<float> expected_k(k_cache), expected_v(k_cache);
    const int64_t kv_dim = n_heads * dim;
    fast::kv_append(
        {x.data(), x.data() + elems, n_tokens, kv_dim, 5, k_cache.data(), v_cache.data()}, pool);
    reference::kv_append(
        {x.data(), x.data() + elems, n_tokens, kv_dim, 5, expected_k.data(), expected_v.data()});
    EXPECT_TRUE(same_bits(k_cache, expected_k));
    EXPECT_TRUE(same_bits(v_cache, expected_v));

    const std::vector<int64_t> rows = {n_tokens - 1, 0, n_tokens / 2};
    std::vector<float> taken = unwritten(3 * kv_dim), expected_taken(taken);
    fast::take_rows({x.data(), rows.data(), 3, kv_dim, taken.data()}, pool);
    reference::take_rows({x.data(), rows.data(), 3, kv_dim, expected_taken.data()});
    EXPECT_TRUE(same_bits(taken, expected_taken));
  }
}

}  // namespace
}  // namespace apr::cpu
