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

struct Shape {
  int64_t n_heads, n_kv_heads, head_dim;
};

struct AttentionCase {
  Shape shape;
  int64_t n_positions;
  std::vector<float> q, k, v;  // q of every position
  float scale;

  AttentionCase(const Shape& of, int64_t n) : shape(of), n_positions(n) {
    Random random(3);
    q = random.floats(n * of.n_heads * of.head_dim, -2.0F, 2.0F);
    k = random.floats(n * of.n_kv_heads * of.head_dim, -2.0F, 2.0F);
    v = random.floats(n * of.n_kv_heads * of.head_dim);
    scale = 1.0F / std::sqrt(static_cast<float>(of.head_dim));
  }

  // Positions [first, first + n); a cache position that no row may see holds NaN.
  std::vector<float> run(int64_t first, int64_t n, ThreadPool* pool) const {
    std::vector<float> seen_k(k), seen_v(v);
    const auto n_seen = (first + n) * shape.n_kv_heads * shape.head_dim;
    std::fill(seen_k.begin() + n_seen, seen_k.end(), std::nanf(""));
    std::fill(seen_v.begin() + n_seen, seen_v.end(), std::nanf(""));
    const int64_t row_elems = shape.n_heads * shape.head_dim;
    std::vector<float> y = unwritten(n * row_elems);
    const AttentionArgs args{q.data() + first * row_elems,
                             seen_k.data(),
                             seen_v.data(),
                             n,
                             first,
                             shape.n_heads,
                             shape.n_kv_heads,
                             shape.head_dim,
                             scale,
                             y.data()};
    if (pool == nullptr) {
      reference::attention(args);
    } else {
      fast::attention(args, *pool);
    }
    return y;
  }

  // A score is a sum of head_dim products of magnitude at most 4 in chains of head_dim roundings of
  // products and of sums, times the scale: its error is at most
  //   e = scale * 4 * head_dim * 2 * (head_dim + 1) * 2^-24,
  // absolute. A weight is exp of a difference of two scores, each off by e, of magnitude at most
  // 2 * scale * 4 * head_dim (one more rounding): relative error 2 e + that rounding + 2^-22 of
  // exp. The rescaling of each block adds one exp and one product, the sums over the keys one
  // rounding of a product and one of a sum each, in chains no longer than the number of keys;
  // numerator and denominator both have them. |v| <= 1 and the weights' total is 1, so the absolute
  // error is twice the relative one of the weights.
  double bound() const {
    const double dim = static_cast<double>(shape.head_dim), s = static_cast<double>(scale);
    const double score = s * 4.0 * dim * 2.0 * (dim + 1.0) * kF32Rounding;
    const double weight = 2.0 * score + 8.0 * s * dim * kF32Rounding + 0x1p-22;
    const double n_keys = static_cast<double>(n_positions);
    const double n_blocks = std::ceil(n_keys / 64.0) + 1.0;
    const double sums = (2.0 * n_keys + 8.0) * kF32Rounding + n_blocks * (0x1p-22 + kF32Rounding);
    return 2.0 * (weight + sums);
  }
};

constexpr Shape kShapes[] = {{1, 1, 16}, {7, 1, 64}, {14, 2, 64}, {6, 2, 128},
                             {3, 3, 20}, {5, 1, 1},  {50, 1, 8},  {4, 2, 256}};

TEST(FastAttention, StaysWithinTheBoundOfTheReference) {
  for_each_isa([&] {
    ThreadPool pool(2);
    for (const Shape& shape : kShapes) {
      for (const int64_t n : {1, 2, 3, 7, 64, 65, 150}) {
        const AttentionCase test(shape, n);
        EXPECT_TRUE(within(test.run(0, n, &pool), test.run(0, n, nullptr),
                           [&](size_t) { return test.bound(); }))
            << shape.n_heads << " heads of " << shape.head_dim << ", " << n << " tokens";
      }
    }
  });
}

TEST(FastAttention, CrossesSegmentsWithinTheBound) {
  for_each_isa([&] {
    ThreadPool pool(2);
    const AttentionCase test({7, 1, 32}, 2100);
    for (const int64_t first : {1022, 1023, 1024, 2047, 2099}) {
      const int64_t n = std::min<int64_t>(5, test.n_positions - first);
      EXPECT_TRUE(within(test.run(first, n, &pool), test.run(first, n, nullptr),
                         [&](size_t) { return test.bound(); }))
          << "from " << first;
    }
  });
}

// Short contexts, and one of three segments in which one call splits by segments, another not.
TEST(FastAttention, GivesARowTheSameBitsInAnyCall) {
  for_each_isa([&] {
    for (const auto& [shape, n, first] :
         {std::tuple<Shape, int64_t, int64_t>{{14, 2, 64}, 150, 0}, {{7, 1, 20}, 2200, 1990}}) {
      const AttentionCase test(shape, n);
      ThreadPool one(1);
      const std::vector<float> whole = test.run(first, n - first, &one);
      for (int n_threads = 2; n_threads <= 4; ++n_threads) {
        ThreadPool pool(n_threads);
        EXPECT_TRUE(same_bits(test.run(first, n - first, &pool), whole));
      }
      ThreadPool pool(2);
      for (const int64_t n_part : {1, 2, 3, 7, 64, 65}) {
        std::vector<float> parts;
        for (int64_t token = first; token < n; token += n_part) {
          const auto part = test.run(token, std::min(n_part, n - token), &pool);
          parts.insert(parts.end(), part.begin(), part.end());
        }
        EXPECT_TRUE(same_bits(parts, whole)) << n_part << " tokens a call";
      }
    }
  });
}

TEST(FastAttention, KeepsTheLargestScoreHoweverFarApart) {
  // Scores of +-4000: all weight falls on the best key, whichever block it is in.
  for_each_isa([&] {
    ThreadPool pool(2);
    for (const int64_t best : {0, 63, 64, 130}) {
      AttentionCase test({1, 1, 16}, 131);
      std::fill(test.k.begin(), test.k.end(), -1000.0F);
      std::fill(test.q.begin(), test.q.end(), 1.0F);
      std::fill(test.k.begin() + best * 16, test.k.begin() + (best + 1) * 16, 1000.0F);
      const std::vector<float> y = test.run(130, 1, &pool);
      EXPECT_TRUE(same_bits(y, {test.v.data() + best * 16, 16})) << "key " << best;
    }
  });
}

TEST(FastAttention, ShowsANanInTheRowsThatSeeIt) {
  for_each_isa([&] {
    ThreadPool pool(2);
    AttentionCase test({2, 1, 16}, 70);
    test.k[5 * 16 + 3] = std::nanf("");
    const std::vector<float> y = test.run(0, 70, &pool);
    for (size_t elem = 0; elem < y.size(); ++elem) {
      EXPECT_EQ(std::isnan(y[elem]), elem / 32 >= 5) << elem;
    }
  });
}

}  // namespace
}  // namespace apr::cpu
