#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/fast/kernel_table.h"
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

// Sums of products of magnitude at most `size` in all, over n_cols columns. The longest chain of
// roundings of an element: 1024 / 4 products and their sums in a lane (4 lanes, multiply and add
// rounded apart: 2 x 256), 4 levels of the tree, one sum for each block of 1024; then the bias.
double chain_roundings(int64_t n_cols) {
  const double longest_lane =
      2.0 * std::ceil(static_cast<double>(std::min<int64_t>(n_cols, 1024)) / 4.0);
  return longest_lane + 4.0 + static_cast<double>((n_cols + 1023) / 1024) + 2.0;
}

struct MatmulCase {
  Matrix w;
  std::vector<float> x, bias;
  int64_t n_tokens;

  MatmulCase(const QuantType& type, int64_t n_rows, int64_t n_cols, int64_t n_tokens_of_x)
      : w(type, 1, n_rows, n_cols, type.id + 1), n_tokens(n_tokens_of_x) {
    Random random(7);
    x = random.floats(n_tokens * n_cols);
    bias = random.floats(n_rows);
  }

  std::vector<float> run(int64_t first_token, int64_t n, ThreadPool* pool, bool with_bias) const {
    std::vector<float> y = unwritten(n * w.ref.n_rows);
    const MatmulArgs args{x.data() + first_token * w.ref.n_cols, w.ref,
                          with_bias ? bias.data() : nullptr, n, y.data()};
    if (pool == nullptr) {
      reference::matmul(args);
    } else {
      fast::matmul(args, *pool);
    }
    return y;
  }

  double bound(size_t elem) const {
    const int64_t token = static_cast<int64_t>(elem) / w.ref.n_rows;
    const int64_t row = static_cast<int64_t>(elem) % w.ref.n_rows;
    double size = std::abs(static_cast<double>(bias[static_cast<size_t>(row)]));
    for (int64_t col = 0; col < w.ref.n_cols; ++col) {
      size +=
          std::abs(static_cast<double>(w.values[static_cast<size_t>(row * w.ref.n_cols + col)]) *
                   x[static_cast<size_t>(token * w.ref.n_cols + col)]);
    }
    return 1.01 * chain_roundings(w.ref.n_cols) * kF32Rounding * size;
  }
};

std::string type_name(const ::testing::TestParamInfo<const QuantType*>& info) {
  return std::string(info.param->name);
}

std::vector<const QuantType*> all_types() {
  std::vector<const QuantType*> types;
  for (const QuantType& type : quant_types()) {
    types.push_back(&type);
  }
  return types;
}

class FastMatmul : public ::testing::TestWithParam<const QuantType*> {};
INSTANTIATE_TEST_SUITE_P(Types, FastMatmul, ::testing::ValuesIn(all_types()), type_name);

TEST_P(FastMatmul, StaysWithinTheBoundOfTheReference) {
  const int64_t block = GetParam()->block_elems;
  for_each_isa([&] {
    ThreadPool pool(2);
    for (const int64_t n_cols : {block, 3 * block, (1024 / block + 1) * block}) {
      for (const int64_t n_rows : {1, 5, 37}) {
        for (const int64_t n_tokens : {1, 2, 3, 7}) {
          const MatmulCase test(*GetParam(), n_rows, n_cols, n_tokens);
          for (const bool with_bias : {false, true}) {
            EXPECT_TRUE(within(test.run(0, n_tokens, &pool, with_bias),
                               test.run(0, n_tokens, nullptr, with_bias),
                               [&](size_t elem) { return test.bound(elem); }))
                << n_rows << " rows, " << n_cols << " columns, " << n_tokens << " tokens";
          }
        }
      }
    }
  });
}

TEST_P(FastMatmul, GivesARowTheSameBitsInAnyCall) {
  const int64_t block = GetParam()->block_elems;
  const int64_t n_tokens = 65, n_rows = 43;
  for_each_isa([&] {
    for (const int64_t n_cols : {block, (1280 / block + 1) * block}) {
      const MatmulCase test(*GetParam(), n_rows, n_cols, n_tokens);
      ThreadPool one(1);
      const std::vector<float> whole = test.run(0, n_tokens, &one, true);
      for (int n_threads = 2; n_threads <= 4; ++n_threads) {
        ThreadPool pool(n_threads);
        EXPECT_TRUE(same_bits(test.run(0, n_tokens, &pool, true), whole));
      }
      for (const int64_t n_part : {1, 2, 3, 4, 5, 6, 7, 64}) {
        std::vector<float> parts;
        for (int64_t token = 0; token < n_tokens; token += n_part) {
          const auto part = test.run(token, std::min(n_part, n_tokens - token), &one, true);
          parts.insert(parts.end(), part.begin(), part.end());
        }
        EXPECT_TRUE(same_bits(parts, whole)) << n_part << " tokens a call";
      }
    }
  });
}

TEST_P(FastMatmul, DecodesWithTheBitsOfTheReference) {
  const QuantType& type = *GetParam();
  // The sample blocks, and random bytes: every field takes any value, scales become NaN and
  // infinite.
  std::vector<std::byte> blocks = test::sample_blocks(type);
  Random random(type.id);
  for (int64_t i = 0; i < 256 * type.block_bytes; ++i) {
    blocks.push_back(static_cast<std::byte>(random.below(256)));
  }
  const int64_t n_blocks = static_cast<int64_t>(blocks.size()) / type.block_bytes;
  const int64_t row_blocks = 256 / type.block_elems, n_rows = n_blocks / row_blocks;
  const MatrixRef table{&type, blocks.data(), 1, n_rows, 256, type.row_bytes(256)};
  std::vector<int32_t> ids(static_cast<size_t>(n_rows));
  for (int64_t row = 0; row < n_rows; ++row) {
    ids[static_cast<size_t>(row)] = static_cast<int32_t>(n_rows - 1 - row);
  }
  std::vector<float> expected = unwritten(n_rows * 256);
  reference::embed({ids.data(), table, n_rows, expected.data()});
  for_each_isa([&] {
    ThreadPool pool(2);
    std::vector<float> found = unwritten(n_rows * 256);
    fast::embed({ids.data(), table, n_rows, found.data()}, pool);
    EXPECT_TRUE(same_bits(found, expected));
  });
}

TEST(FastMatmulShapes, TakesRowsThatAreNoMultipleOfTheLanes) {
  const QuantType& type = *find_quant_type("F32");
  for_each_isa([&] {
    ThreadPool pool(3);
    for (const int64_t n_cols : {1, 3, 15, 17, 100, 257, 1025, 2047}) {
      for (const int64_t n_tokens : {1, 8}) {
        const MatmulCase test(type, 6, n_cols, n_tokens);
        EXPECT_TRUE(within(test.run(0, n_tokens, &pool, true), test.run(0, n_tokens, nullptr, true),
                           [&](size_t elem) { return test.bound(elem); }))
            << n_cols << " columns";
      }
    }
  });
}

TEST(FastMatmulShapes, KeepsInfinityAndNanOfOneTokenOutOfTheOthers) {
  const QuantType& type = *find_quant_type("Q8_0");
  for_each_isa([&] {
    ThreadPool pool(2);
    MatmulCase test(type, 9, 96, 9);
    const std::vector<float> clean = test.run(0, 9, &pool, false);
    test.x[4 * 96 + 5] = std::nanf("");
    const std::vector<float> found = test.run(0, 9, &pool, false);
    for (size_t elem = 0; elem < found.size(); ++elem) {
      if (elem / 9 == 4) {
        EXPECT_TRUE(std::isnan(found[elem]));
      } else {
        EXPECT_EQ(found[elem], clean[elem]);
      }
    }
  });
}

}  // namespace
}  // namespace apr::cpu
