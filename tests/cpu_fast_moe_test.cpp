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
using test::Matrix;
using test::Random;
using test::same_bits;
using test::unwritten;
using test::within;

TEST(FastMoeRoute, EqualsTheReferenceBitForBit) {
  for (const int64_t n_experts : {1, 4, 17, 128}) {
    for (const int64_t n_used : {1, 3, 8}) {
      if (n_used > n_experts) {
        continue;
      }
      const int64_t n_tokens = 65;
      Random random(1);
      auto logits = random.floats(n_tokens * n_experts, -4.0F, 4.0F);
      for (float& logit : logits) {
        logit = std::round(logit * 4.0F) / 4.0F;  // many ties
      }
      std::vector<int32_t> ids(static_cast<size_t>(n_tokens * n_used), -1), expected_ids(ids);
      std::vector<float> weights = unwritten(n_tokens * n_used), expected_weights(weights);
      reference::moe_route({logits.data(), n_tokens, n_experts, n_used, expected_ids.data(),
                            expected_weights.data()});
      ThreadPool pool(3);
      fast::moe_route({logits.data(), n_tokens, n_experts, n_used, ids.data(), weights.data()},
                      pool);
      EXPECT_EQ(ids, expected_ids);
      EXPECT_TRUE(same_bits(weights, expected_weights));
    }
  }
}

struct MoeCase {
  int64_t n_tokens, n_experts, n_used, model_dim, ffn_dim;
  Matrix gate, up, down;
  std::vector<float> x, init, weights;
  std::vector<int32_t> ids;

  MoeCase(const QuantType& type, int64_t tokens, int64_t experts, int64_t used, int64_t model,
          int64_t ffn)
      : n_tokens(tokens),
        n_experts(experts),
        n_used(used),
        model_dim(model),
        ffn_dim(ffn),
        gate(type, experts, ffn, model, 1),
        up(type, experts, ffn, model, 2),
        down(type, experts, model, ffn, 3) {
    Random random(4);
    x = random.floats(tokens * model, -0.1F, 0.1F);
    init = random.floats(tokens * model);
    const auto logits = random.floats(tokens * experts);
    ids.resize(static_cast<size_t>(tokens * used));
    weights = unwritten(tokens * used);
    reference::moe_route({logits.data(), tokens, experts, used, ids.data(), weights.data()});
  }

  std::vector<float> run(int64_t token, int64_t n, ThreadPool* pool, bool with_init = true) const {
    std::vector<float> y = unwritten(n * model_dim);
    const MoeFfnArgs args{x.data() + token * model_dim,
                          ids.data() + token * n_used,
                          weights.data() + token * n_used,
                          gate.ref,
                          up.ref,
                          down.ref,
                          with_init ? init.data() + token * model_dim : nullptr,
                          n,
                          n_used,
                          y.data()};
    if (pool == nullptr) {
      reference::moe_ffn(args);
    } else {
      fast::moe_ffn(args, *pool);
    }
    return y;
  }

  // Element bounds from the chain: a dot of n columns has an error of at most d(n) * sum |w x| with
  // d(n) = (n / 2 + 7) 2^-24 (cpu_fast_matmul_test.cpp; n < 1024 here); h = silu(g) u has the slope
  // 1.1 in g, u in u and 2^-20 of its own; the contributions add the weights' products and sums.
  std::vector<double> bounds() const {
    const auto d = [](int64_t n) {
      return 1.01 * (static_cast<double>(n) / 2.0 + 9.0) * kF32Rounding;
    };
    const auto value = [](const Matrix& m, int64_t expert, int64_t row, int64_t col) {
      return static_cast<double>(
          m.values[static_cast<size_t>((expert * m.ref.n_rows + row) * m.ref.n_cols + col)]);
    };
    std::vector<double> bound(static_cast<size_t>(n_tokens * model_dim));
    std::vector<double> h(static_cast<size_t>(ffn_dim)), h_error(h);
    for (int64_t token = 0; token < n_tokens; ++token) {
      std::vector<double> size(static_cast<size_t>(model_dim));
      for (int64_t slot = 0; slot < n_used; ++slot) {
        const int64_t expert = ids[static_cast<size_t>(token * n_used + slot)];
        const double weight =
            static_cast<double>(weights[static_cast<size_t>(token * n_used + slot)]);
        for (int64_t row = 0; row < ffn_dim; ++row) {
          double g = 0.0, g_size = 0.0, u = 0.0, u_size = 0.0;
          for (int64_t col = 0; col < model_dim; ++col) {
            const double x_col =
                static_cast<double>(x[static_cast<size_t>(token * model_dim + col)]);
            const double gx = value(gate, expert, row, col) * x_col;
            const double ux = value(up, expert, row, col) * x_col;
            g += gx;
            g_size += std::abs(gx);
            u += ux;
            u_size += std::abs(ux);
          }
          const double silu = g / (1.0 + std::exp(-g));
          const double g_error = d(model_dim) * g_size, u_error = d(model_dim) * u_size;
          const size_t i = static_cast<size_t>(row);
          h[i] = std::abs(silu * u);
          h_error[i] = (std::abs(u) + u_error) * (1.1 * g_error + 0x1p-20 * std::abs(silu)) +
                       std::abs(silu) * u_error;
        }
        for (int64_t row = 0; row < model_dim; ++row) {
          double error = 0.0, total = 0.0;
          for (int64_t col = 0; col < ffn_dim; ++col) {
            const double w = std::abs(value(down, expert, row, col));
            error += w * h_error[static_cast<size_t>(col)];
            total += w * (h[static_cast<size_t>(col)] + h_error[static_cast<size_t>(col)]);
          }
          bound[static_cast<size_t>(token * model_dim + row)] +=
              weight * (error + d(ffn_dim) * total);
          size[static_cast<size_t>(row)] += weight * total;
        }
      }
      for (int64_t row = 0; row < model_dim; ++row) {
        bound[static_cast<size_t>(token * model_dim + row)] +=
            2.0 * static_cast<double>(n_used + 2) * kF32Rounding *
            (size[static_cast<size_t>(row)] + 1.0);
      }
    }
    return bound;
  }
};

TEST(FastMoeFfn, StaysWithinTheBoundOfTheReference) {
  for_each_isa([&] {
    ThreadPool pool(2);
    for (const char* type : {"F32", "Q8_0", "Q4_0"}) {
      for (const int64_t n_tokens : {1, 2, 7, 33}) {
        const MoeCase test(*find_quant_type(type), n_tokens, 5, 2, 96, 64);
        const std::vector<double> bounds = test.bounds();
        for (const bool with_init : {true, false}) {
          EXPECT_TRUE(within(test.run(0, n_tokens, &pool, with_init),
                             test.run(0, n_tokens, nullptr, with_init),
                             [&](size_t i) { return bounds[i]; }))
              << type << ", " << n_tokens << " tokens";
        }
      }
    }
  });
}

TEST(FastMoeFfn, GivesARowTheSameBitsInAnyCall) {
  for_each_isa([&] {
    for (const char* type : {"Q4_K", "Q6_K"}) {
      const int64_t n_tokens = 65;
      const MoeCase test(*find_quant_type(type), n_tokens, 8, 3, 256, 512);
      ThreadPool one(1);
      const std::vector<float> whole = test.run(0, n_tokens, &one);
      for (int n_threads = 2; n_threads <= 4; ++n_threads) {
        ThreadPool pool(n_threads);
        EXPECT_TRUE(same_bits(test.run(0, n_tokens, &pool), whole));
      }
      for (const int64_t n_part : {1, 2, 3, 7, 64}) {
        std::vector<float> parts;
        for (int64_t token = 0; token < n_tokens; token += n_part) {
          const auto part = test.run(token, std::min(n_part, n_tokens - token), &one);
          parts.insert(parts.end(), part.begin(), part.end());
        }
        EXPECT_TRUE(same_bits(parts, whole)) << n_part << " tokens a call";
      }
    }
  });
}

TEST(FastMoeFfn, AddsOntoItsOwnInput) {
  for_each_isa([&] {
    ThreadPool pool(2);
    const MoeCase test(*find_quant_type("Q8_0"), 9, 4, 2, 64, 32);
    const std::vector<float> expected = test.run(0, 9, &pool);
    std::vector<float> y(test.init);
    fast::moe_ffn({test.x.data(), test.ids.data(), test.weights.data(), test.gate.ref, test.up.ref,
                   test.down.ref, y.data(), 9, 2, y.data()},
                  pool);
    EXPECT_TRUE(same_bits(y, expected));
  });
}

}  // namespace
}  // namespace apr::cpu
