#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

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

struct Result {
  std::vector<float> y, state;
};

void expect_same(const Result& found, const Result& expected) {
  EXPECT_TRUE(same_bits(found.y, expected.y));
  EXPECT_TRUE(same_bits(found.state, expected.state));
}

// Runs `op(first_token, n_tokens, state_in, pool)` in calls of n_part tokens, states handed on.
template <class Op>
Result in_parts(int64_t n_tokens, int64_t n_part, std::vector<float> state, ThreadPool& pool,
                const Op& op) {
  Result all{{}, std::move(state)};
  for (int64_t token = 0; token < n_tokens; token += n_part) {
    Result part = op(token, std::min(n_part, n_tokens - token), all.state, pool);
    all.y.insert(all.y.end(), part.y.begin(), part.y.end());
    all.state = std::move(part.state);
  }
  return all;
}

template <class Op>
Result same_in_any_call(int64_t n_tokens, const std::vector<float>& state, const Op& op) {
  ThreadPool one(1);
  const Result whole = in_parts(n_tokens, n_tokens, state, one, op);
  for (int n_threads = 2; n_threads <= 4; ++n_threads) {
    ThreadPool pool(n_threads);
    expect_same(in_parts(n_tokens, n_tokens, state, pool, op), whole);
  }
  for (const int64_t n_part : {1, 2, 3, 7, 64}) {
    expect_same(in_parts(n_tokens, n_part, state, one, op), whole);
  }
  return whole;
}

// y = silu(sum): the sum of n_taps products of magnitude `size` in all has n_taps + 1 roundings a
// side; the slope of SiLU is below 1.1; then the 2^-20 of SiLU itself (cpu_fast_rows_test.cpp).
TEST(FastConv1d, StaysWithinTheBoundInAnyCall) {
  for_each_isa([&] {
    for (const int64_t n_channels : {1, 20, 128, 300}) {
      for (const int64_t n_taps : {1, 2, 4}) {
        const int64_t n_tokens = 65, n_past = n_taps - 1;
        Random random(1);
        const auto x = random.floats(n_tokens * n_channels, -4.0F, 4.0F);
        const auto kernel = random.floats(n_channels * n_taps);
        const auto window = random.floats(n_channels * n_past);
        const auto run = [&](int64_t token, int64_t n, const std::vector<float>& state,
                             ThreadPool* pool) {
          Result result{unwritten(n * n_channels), unwritten(n_channels * n_past)};
          const Conv1dArgs args{
              x.data() + token * n_channels, kernel.data(),  n, n_channels, n_taps, state.data(),
              result.state.data(),           result.y.data()};
          if (pool == nullptr) {
            reference::conv1d(args);
          } else {
            fast::conv1d(args, *pool);
          }
          return result;
        };
        const Result expected = run(0, n_tokens, window, nullptr);
        const Result found =
            same_in_any_call(n_tokens, window,
                             [&](int64_t token, int64_t n, const std::vector<float>& state,
                                 ThreadPool& pool) { return run(token, n, state, &pool); });
        EXPECT_TRUE(same_bits(found.state, expected.state));
        const double taps = static_cast<double>(n_taps);
        EXPECT_TRUE(within(found.y, expected.y,
                           [&](size_t i) {
                             return 1.1 * 2.0 * (taps + 1.0) * kF32Rounding * 4.0 * taps +
                                    0x1p-20 * std::abs(static_cast<double>(expected.y[i]));
                           }))
            << n_channels << " channels, " << n_taps << " taps";
      }
    }
  });
}

struct DeltaShape {
  int64_t n_k_heads, n_v_heads, head_dim;
};

// With |k| = 1, beta in [0, 1] and keep <= 1 a step shrinks the error that a row of the state
// brings along, and adds: the dot of `recalled` (at most 2 (dim + 1) roundings of each side, of
// products of magnitude at most |S|), the roundings of v - S k (|v| <= 1) and of the three products
// and the sum of the update. After T tokens a row is off by at most e = T (4 (dim + 1) + 12) 2^-24
// (|S| + 1), |S| the largest norm of a row on the way. y = S q scale, |q| = 1: e and one more dot.
TEST(FastDeltaNet, StaysWithinTheBoundInAnyCall) {
  for_each_isa([&] {
    for (const DeltaShape& shape : {DeltaShape{2, 6, 128}, {1, 1, 16}, {3, 3, 64}, {1, 2, 22}}) {
      const int64_t n_tokens = 65, dim = shape.head_dim, v_stride = shape.n_v_heads * dim + 7;
      Random random(2);
      auto q = random.floats(n_tokens * shape.n_k_heads * dim);
      auto k = random.floats(n_tokens * shape.n_k_heads * dim);
      for (auto* vectors : {&q, &k}) {
        std::vector<float> unit = unwritten(static_cast<int64_t>(vectors->size()));
        reference::l2_norm({vectors->data(), n_tokens, shape.n_k_heads, dim, shape.n_k_heads * dim,
                            1e-6F, unit.data()});
        *vectors = unit;
      }
      const auto v = random.floats(n_tokens * v_stride);
      const auto decay = random.floats(n_tokens * shape.n_v_heads, -1.0F, 0.0F);
      const auto beta = random.floats(n_tokens * shape.n_v_heads, 0.0F, 1.0F);
      const auto state = random.floats(shape.n_v_heads * dim * dim);
      const float scale = 0.125F;
      const auto run = [&](int64_t token, int64_t n, const std::vector<float>& state_in,
                           ThreadPool* pool) {
        Result result{unwritten(n * shape.n_v_heads * dim), unwritten(shape.n_v_heads * dim * dim)};
        const int64_t k_offset = token * shape.n_k_heads * dim;
        const DeltaNetArgs args{q.data() + k_offset,
                                k.data() + k_offset,
                                v.data() + token * v_stride,
                                v_stride,
                                decay.data() + token * shape.n_v_heads,
                                beta.data() + token * shape.n_v_heads,
                                n,
                                shape.n_k_heads,
                                shape.n_v_heads,
                                dim,
                                scale,
                                state_in.data(),
                                result.state.data(),
                                result.y.data()};
        if (pool == nullptr) {
          reference::delta_net(args);
        } else {
          fast::delta_net(args, *pool);
        }
        return result;
      };
      double largest_norm = 0.0;
      const auto note_norms = [&](const std::vector<float>& rows) {
        for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(dim)) {
          double sum = 0.0;
          for (size_t col = 0; col < static_cast<size_t>(dim); ++col) {
            sum += static_cast<double>(rows[row + col]) * rows[row + col];
          }
          largest_norm = std::max(largest_norm, std::sqrt(sum));
        }
      };
      note_norms(state);
      ThreadPool one(1);
      const Result expected =
          in_parts(n_tokens, 1, state, one,
                   [&](int64_t token, int64_t n, const std::vector<float>& state_in, ThreadPool&) {
                     Result part = run(token, n, state_in, nullptr);
                     note_norms(part.state);
                     return part;
                   });
      const Result found =
          same_in_any_call(n_tokens, state,
                           [&](int64_t token, int64_t n, const std::vector<float>& state_in,
                               ThreadPool& pool) { return run(token, n, state_in, &pool); });
      const double roundings = 4.0 * (static_cast<double>(dim) + 1.0) + 12.0;
      const double state_bound =
          static_cast<double>(n_tokens) * roundings * kF32Rounding * (largest_norm + 1.0);
      EXPECT_TRUE(within(found.state, expected.state, [&](size_t) { return state_bound; }));
      EXPECT_TRUE(within(found.y, expected.y,
                         [&](size_t) {
                           return static_cast<double>(scale) *
                                  (state_bound + roundings * kF32Rounding * largest_norm);
                         }))
          << shape.n_v_heads << " heads of " << dim;
      // The bound must not be so wide that anything passes.
      EXPECT_LT(state_bound, 0.02 * largest_norm);
    }
  });
}

TEST(FastDeltaGates, EqualTheReferenceBitForBit) {
  for (const int64_t n_tokens : {1, 2, 3, 7, 64, 65}) {
    const int64_t n_heads = 5;
    Random random(3);
    const auto alpha = random.floats(n_tokens * n_heads, -30.0F, 30.0F);
    const auto beta_raw = random.floats(n_tokens * n_heads, -30.0F, 30.0F);
    const auto dt_bias = random.floats(n_heads), ssm_a = random.floats(n_heads, -2.0F, 0.0F);
    std::vector<float> decay = unwritten(n_tokens * n_heads), beta(decay), expected_decay(decay),
                       expected_beta(decay);
    ThreadPool pool(2);
    fast::delta_gates({alpha.data(), beta_raw.data(), dt_bias.data(), ssm_a.data(), n_tokens,
                       n_heads, decay.data(), beta.data()},
                      pool);
    reference::delta_gates({alpha.data(), beta_raw.data(), dt_bias.data(), ssm_a.data(), n_tokens,
                            n_heads, expected_decay.data(), expected_beta.data()});
    EXPECT_TRUE(same_bits(decay, expected_decay));
    EXPECT_TRUE(same_bits(beta, expected_beta));
  }
}

}  // namespace
}  // namespace apr::cpu
