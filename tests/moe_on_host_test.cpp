// The kernels of a mixture of experts as they are, on the host: indices, fragments, tails and the
// order of sums, without a GPU. What is not written stays NaN.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#define APR_QUANT_FILE "apr_quant_files.h"
// Kernels of the overlay, see tests/cuda_tests.cmake.
#include "moe_combine.cu"
#include "moe_fma.cu"
#include "moe_gemm.cu"
#include "moe_group.cu"
#include "moe_matvec.cu"
#include "moe_router.cu"
#include "scale_rows.cu"

#include "cpu/reference/ops.h"
#include "support/moe_problem.h"
#include "support/simt_memory.h"

namespace apr {
namespace {

using test::Aligned;
using test::MoeArithmetic;
using test::MoeProblem;
using test::MoeStack;

template <class T>
Aligned<uint8_t> planes(const MoeStack& stack) {
  return test::to_planes<T>(stack.raw, stack.n_experts * stack.n_rows, stack.n_cols);
}

template <class T>
WeightRef ref_of(const Aligned<uint8_t>& packed, const MoeStack& stack) {
  return {packed.data(), static_cast<int32_t>(stack.n_experts * stack.n_rows),
          static_cast<int32_t>(stack.n_cols)};
}

struct Groups {
  Aligned<int32_t> pairs, first, n_tiles;
  Aligned<MoeTile> tiles;
  MoeGroups ref;

  Groups(const std::vector<int32_t>& ids, int64_t n_experts, int tile_pairs)
      : pairs(ids.size()),
        first(static_cast<size_t>(n_experts) + 1),
        n_tiles(1),
        tiles(ids.size() / static_cast<size_t>(tile_pairs) + 1 + static_cast<size_t>(n_experts)),
        ref{pairs.data(), first.data(), tiles.data(), n_tiles.data()} {
    uint32_t arrived = 0;
    MoeGroupParams params{ids.data(),
                          ref,
                          &arrived,
                          static_cast<int32_t>(ids.size()),
                          static_cast<int32_t>(n_experts),
                          tile_pairs};
    simt::launch({static_cast<unsigned>(n_experts), 1, 1}, 256, 0, [&] { moe_group(params); });
    EXPECT_EQ(arrived, 0U);
  }
};

TEST(MoeGroupOnHost, SortsPairsByExpertAndCutsTiles) {
  std::mt19937 random(3);
  for (const auto& [n_pairs, n_experts, tile_pairs] :
       {std::tuple{1, 1, 128}, {2, 4, 1}, {14, 8, 8}, {600, 7, 128}, {513, 300, 8}}) {
    std::vector<int32_t> ids;
    for (int pair = 0; pair < n_pairs; ++pair) {
      ids.push_back(static_cast<int32_t>(random() % (random() % 2 == 0 ? 2U : 1000U)) % n_experts);
    }
    const Groups groups(ids, n_experts, tile_pairs);
    std::vector<int32_t> expected(ids.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
      return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
    });
    EXPECT_EQ(std::vector<int32_t>(groups.pairs.data(), groups.pairs.data() + n_pairs), expected);
    int next = 0, last_expert = -1;
    for (int tile = 0; tile < groups.n_tiles[0]; ++tile) {
      const MoeTile& found = groups.tiles[static_cast<size_t>(tile)];
      EXPECT_EQ(found.first, next);
      ASSERT_GE(found.n_pairs, 1);
      ASSERT_LE(found.n_pairs, tile_pairs);
      for (int place = next; place < next + found.n_pairs; ++place) {
        ASSERT_EQ(ids[static_cast<size_t>(expected[static_cast<size_t>(place)])], found.expert);
      }
      EXPECT_GE(found.expert, last_expert);
      next += found.n_pairs;
      last_expert = found.expert;
    }
    EXPECT_EQ(next, n_pairs);
    for (int expert = 0; expert <= n_experts; ++expert) {
      EXPECT_EQ(groups.first[static_cast<size_t>(expert)],
                std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return id < expert; }));
    }
  }
}

template <int kTokens, int kExperts>
void check_router(int64_t n_tokens, int64_t n_experts, int64_t n_used, int64_t n_cols, bool norm,
                  unsigned n_splits) {
  SCOPED_TRACE(fmt::format("{} tokens at once: {} tokens, {} experts, {} used, {} columns, norm {}",
                           kTokens, n_tokens, n_experts, n_used, n_cols, norm));
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> x, w, norm_weight;
  for (int64_t elem = 0; elem < n_tokens * n_cols; ++elem) {
    x.push_back(normal(random));
  }
  for (int64_t elem = 0; elem < n_experts * n_cols; ++elem) {
    // Experts 1 and 3 are alike: ties.
    w.push_back(elem / n_cols == 3 ? w[static_cast<size_t>(elem - 2 * n_cols)]
                                   : normal(random) * 0.2F);
  }
  for (int64_t col = 0; col < n_cols; ++col) {
    norm_weight.push_back(1.0F + 0.2F * normal(random));
  }
  const Aligned<float> x_in(x), w_in(w), norm_in(norm_weight), normed(x.size());
  const auto n_logits = static_cast<size_t>(n_tokens * n_experts);
  const auto n_pairs = static_cast<size_t>(n_tokens * n_used);
  const Aligned<float> logits(n_logits + 1), weights(n_pairs + 1);
  const Aligned<int32_t> ids(n_pairs + 1);
  std::vector<uint32_t> arrived(static_cast<size_t>(n_tokens), 0);
  const MoeRouterParams params{x_in.data(),
                               norm ? norm_in.data() : nullptr,
                               norm ? normed.data() : nullptr,
                               w_in.data(),
                               logits.data(),
                               ids.data(),
                               weights.data(),
                               arrived.data(),
                               static_cast<int32_t>(n_tokens),
                               static_cast<int32_t>(n_cols),
                               static_cast<int32_t>(n_experts),
                               static_cast<int32_t>(n_used),
                               1e-6F};
  simt::launch({static_cast<unsigned>((n_tokens + kTokens - 1) / kTokens), n_splits, 1}, 256,
               static_cast<size_t>(kTokens * n_cols * 4),
               [&] { moe_router<kTokens, kExperts>(params); });
  EXPECT_EQ(arrived, std::vector<uint32_t>(arrived.size(), 0));
  EXPECT_TRUE(std::isnan(logits[n_logits]) && std::isnan(weights[n_pairs]));
  EXPECT_EQ(ids[n_pairs], -1);
  std::vector<float> normed_ref(x);
  if (norm) {
    cpu::reference::rms_norm(
        {x.data(), norm_weight.data(), n_tokens, n_cols, 1e-6F, normed_ref.data()});
    for (size_t elem = 0; elem < x.size(); ++elem) {
      // Another order of n_cols squares, three roundings.
      ASSERT_NEAR(normed[elem], normed_ref[elem], 1e-5F * std::abs(normed_ref[elem]) + 1e-12F);
    }
  }
  for (int64_t token = 0; token < n_tokens; ++token) {
    for (int64_t expert = 0; expert < n_experts; ++expert) {
      double sum = 0.0, size = 0.0;
      for (int64_t col = 0; col < n_cols; ++col) {
        const double product =
            static_cast<double>(normed_ref[static_cast<size_t>(token * n_cols + col)]) *
            w[static_cast<size_t>(expert * n_cols + col)];
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(logits[static_cast<size_t>(token * n_experts + expert)], sum,
                  (static_cast<double>(n_cols) / 16.0 + 40.0) * 0x1p-24 * size);
    }
  }
  std::vector<int32_t> expected_ids(n_pairs);
  std::vector<float> expected_weights(n_pairs);
  cpu::reference::moe_route(
      {logits.data(), n_tokens, n_experts, n_used, expected_ids.data(), expected_weights.data()});
  for (size_t pair = 0; pair < n_pairs; ++pair) {
    ASSERT_EQ(ids[pair], expected_ids[pair]) << pair;
    ASSERT_EQ(weights[pair], expected_weights[pair]) << pair;
  }
}

TEST(MoeRouterOnHost, EqualsTheReference) {
  check_router<1, 1>(1, 8, 2, 256, true, 1);
  check_router<1, 1>(1, 128, 8, 2052, true, 16);
  check_router<1, 1>(3, 256, 8, 64, false, 4);
  check_router<1, 1>(1, 300, 40, 8, false, 5);
  check_router<1, 1>(1, 1, 1, 4, false, 1);
  check_router<8, 4>(7, 8, 2, 256, true, 1);
  check_router<8, 4>(20, 70, 8, 132, false, 3);
  check_router<8, 4>(9, 258, 8, 36, true, 2);
}

TEST(MoeRouterOnHost, ChoosesInRangeWhateverTheLogitsAre) {
  std::vector<float> x(8, std::nanf("")), w(5 * 8, 1.0F), logits(5), weights(3);
  const Aligned<float> x_in(x), w_in(w);
  std::vector<int32_t> ids(3, -1);
  uint32_t arrived = 0;
  const MoeRouterParams params{x_in.data(),
                               nullptr,
                               nullptr,
                               w_in.data(),
                               logits.data(),
                               ids.data(),
                               weights.data(),
                               &arrived,
                               1,
                               8,
                               5,
                               3,
                               0.0F};
  simt::launch({1, 1, 1}, 256, 32, [&] { moe_router<1, 1>(params); });
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_TRUE(std::isnan(weights[0]));
}

enum class Path { kFma, kGemm };

// All tokens through the grouped kernels of one path.
template <class TGate, class TUp, class TDown>
void check_grouped(Path path, const MoeProblem::Shape& shape, const char* gate, const char* up,
                   const char* down) {
  const MoeProblem problem(*find_quant_type(gate), *find_quant_type(up), *find_quant_type(down),
                           shape);
  SCOPED_TRACE(problem.name());
  const auto n_pairs = static_cast<size_t>(shape.n_tokens * shape.n_used);
  const Groups groups(problem.ids, shape.n_experts, kMoeGemmPairs);
  const Aligned<uint8_t> gate_w = planes<TGate>(problem.gate), up_w = planes<TUp>(problem.up),
                         down_w = planes<TDown>(problem.down);
  const Aligned<float> x(problem.x), hidden(n_pairs * static_cast<size_t>(shape.ffn_dim)),
      parts(n_pairs * static_cast<size_t>(shape.model_dim)), y(problem.x.size());
  const auto multiply = [&]<class T>(const Aligned<uint8_t>& packed, const MoeStack& stack,
                                     const float* from, int64_t n_rows, int pairs_of_row,
                                     const float* gate_values, float* to) {
    MoeProductParams params{};
    params.w = ref_of<T>(packed, stack);
    params.n_rows = static_cast<int32_t>(stack.n_rows);
    params.groups = groups.ref;
    params.x = from;
    params.pairs_of_row = pairs_of_row;
    params.gate = gate_values;
    params.y = to;
    params.batch_pairs = 3;
    const float largest = static_cast<float>(stack.largest);
    params.largest = &largest;
    const auto n_tiles =
        static_cast<unsigned>(n_pairs / kMoeGemmPairs + 1 +
                              std::min<size_t>(n_pairs, static_cast<size_t>(shape.n_experts)));
    const auto n_cols = static_cast<size_t>(stack.n_cols);
    if (path == Path::kFma) {
      simt::launch({n_tiles, 2, 1}, 64, 3 * n_cols * 4, [&] { moe_fma<T, true>(params); });
      return;
    }
    const Aligned<uint16_t> halves(static_cast<size_t>(n_rows) * n_cols);
    const Aligned<float> undo(static_cast<size_t>(n_rows));
    params.x_f16 = {halves.data(), undo.data()};
    simt::launch({static_cast<unsigned>(n_rows), 1, 1}, 32, 0, [&] {
      scale_rows<4>({from, params.x_f16, static_cast<int32_t>(stack.n_cols)});
    });
    simt::launch(
        {n_tiles, static_cast<unsigned>((stack.n_rows + kMoeGemmRows - 1) / kMoeGemmRows), 1},
        kMoeGemmWarps * 32, static_cast<size_t>(moe_gemm_shared_bytes<T>()),
        [&] { moe_gemm<T>(params); });
  };
  const int n_used = static_cast<int>(shape.n_used);
  multiply.template operator()<TGate>(gate_w, problem.gate, x.data(), shape.n_tokens, n_used,
                                      nullptr, hidden.data());
  multiply.template operator()<TUp>(up_w, problem.up, x.data(), shape.n_tokens, n_used,
                                    hidden.data(), hidden.data());
  multiply.template operator()<TDown>(down_w, problem.down, hidden.data(),
                                      static_cast<int64_t>(n_pairs), 1, nullptr, parts.data());
  const Aligned<float> init(problem.init), residual(problem.residual);
  const MoeCombineParams combine{parts.data(),
                                 problem.weights.data(),
                                 init.data(),
                                 residual.data(),
                                 y.data(),
                                 n_used,
                                 static_cast<int32_t>(shape.model_dim)};
  simt::launch({static_cast<unsigned>(shape.n_tokens),
                static_cast<unsigned>((shape.model_dim + 255) / 256), 1},
               256, 0, [&] { moe_combine(combine); });
  const MoeArithmetic how = path == Path::kFma ? MoeArithmetic::kF32 : MoeArithmetic::kHalf;
  for (int64_t token = 0; token < shape.n_tokens;
       token += std::max<int64_t>(1, shape.n_tokens / 5)) {
    problem.check(token, y.data() + token * shape.model_dim, how, how, how, true, true);
  }
}

TEST(MoeProductsOnHost, InF32AreWithinTheirBound) {
  using namespace quant;
  check_grouped<Q4_K, Q4_K, Q6_K>(Path::kFma, {5, 4, 2, 256, 256}, "Q4_K", "Q4_K", "Q6_K");
  check_grouped<Q8_0, Q5_1, Q8_0>(Path::kFma, {11, 9, 3, 96, 160}, "Q8_0", "Q5_1", "Q8_0");
}

TEST(MoeProductsOnHost, OnTensorCoresAreWithinTheirBound) {
  using namespace quant;
  check_grouped<Q4_K, Q4_K, Q6_K>(Path::kGemm, {7, 5, 2, 512, 256}, "Q4_K", "Q4_K", "Q6_K");
  check_grouped<Q8_0, Q4_0, Q8_0>(Path::kGemm, {300, 3, 2, 96, 160}, "Q8_0", "Q4_0", "Q8_0");
  check_grouped<IQ3_S, IQ3_XXS, Q3_K>(Path::kGemm, {2, 4, 3, 256, 256}, "IQ3_S", "IQ3_XXS", "Q3_K");
  check_grouped<MXFP4, Q5_1, IQ4_NL>(Path::kGemm, {40, 3, 1, 352, 64}, "MXFP4", "Q5_1", "IQ4_NL");
}

// One token through the kernels of a decode step.
template <class T, class TDown>
void check_matvec(const MoeProblem::Shape& shape, const char* type, const char* down, bool at_once,
                  int n_col_warps, unsigned n_blocks) {
  const MoeProblem problem(*find_quant_type(type), *find_quant_type(type), *find_quant_type(down),
                           shape);
  SCOPED_TRACE(fmt::format("{}, gate and up at once {}, {} warps a row, {} blocks", problem.name(),
                           at_once, n_col_warps, n_blocks));
  const Aligned<uint8_t> gate_w = planes<T>(problem.gate), up_w = planes<T>(problem.up),
                         down_w = planes<TDown>(problem.down);
  const Aligned<float> x(problem.x), hidden(static_cast<size_t>(shape.n_used * shape.ffn_dim)),
      y(static_cast<size_t>(shape.model_dim));
  MoeMatvecParams params{};
  params.w[0] = ref_of<T>(gate_w, problem.gate);
  params.w[1] = ref_of<T>(up_w, problem.up);
  params.x = x.data();
  params.ids = problem.ids.data();
  params.y = hidden.data();
  params.n_rows = static_cast<int32_t>(shape.ffn_dim);
  params.n_used = static_cast<int32_t>(shape.n_used);
  params.n_col_warps = n_col_warps;
  const auto shared = [](int64_t n_cols, int group_elems, int ring_bytes) {
    return static_cast<size_t>(staged_x_bytes(static_cast<int>(n_cols), group_elems) + ring_bytes);
  };
  const size_t n_bytes = shared(shape.model_dim, T::kGroupElems, rings_and_grid_bytes<T>());
  if (at_once) {
    simt::launch({n_blocks, 1, 1}, kMatvecWarps * 32, n_bytes,
                 [&] { moe_matvec<T, MatvecEpilogue::kSwiglu>(params); });
  } else {
    simt::launch({n_blocks, 1, 1}, kMatvecWarps * 32, n_bytes,
                 [&] { moe_matvec<T, MatvecEpilogue::kNone>(params); });
    params.w[0] = params.w[1];
    params.gate = hidden.data();
    params.ids_are_settled = 1;
    simt::launch({n_blocks, 1, 1}, kMatvecWarps * 32, n_bytes,
                 [&] { moe_matvec<T, MatvecEpilogue::kNone>(params); });
  }
  const Aligned<float> init(problem.init), residual(problem.residual);
  params = {};
  params.w[0] = ref_of<TDown>(down_w, problem.down);
  params.x = hidden.data();
  params.ids = problem.ids.data();
  params.weights = problem.weights.data();
  params.init = at_once ? init.data() : nullptr;
  params.residual = residual.data();
  params.y = y.data();
  params.n_rows = static_cast<int32_t>(shape.model_dim);
  params.n_used = static_cast<int32_t>(shape.n_used);
  params.n_col_warps = n_col_warps;
  params.sums = 1;
  params.ids_are_settled = 1;
  simt::launch({n_blocks, 1, 1}, kMatvecWarps * 32,
               shared(shape.n_used * staged_cols(static_cast<int>(shape.ffn_dim)),
                      TDown::kGroupElems, rings_and_grid_bytes<TDown>()),
               [&] { moe_matvec<TDown, MatvecEpilogue::kNone>(params); });
  problem.check(0, y.data(), MoeArithmetic::kStaged, MoeArithmetic::kStaged, MoeArithmetic::kStaged,
                at_once, true);
}

TEST(MoeMatvecOnHost, IsWithinItsBound) {
  using namespace quant;
  check_matvec<Q4_K, Q6_K>({1, 6, 3, 512, 256}, "Q4_K", "Q6_K", true, 8, 3);
  check_matvec<Q4_K, Q6_K>({1, 6, 2, 256, 256}, "Q4_K", "Q6_K", false, 16, 2);
  check_matvec<Q8_0, Q5_1>({1, 4, 4, 352, 96}, "Q8_0", "Q5_1", true, 2, 1);
  check_matvec<Q8_0, Q8_0>({1, 9, 8, 64, 32}, "Q8_0", "Q8_0", true, 2, 2);
  check_matvec<Q8_0, Q8_0>({1, 9, 8, 64, 32}, "Q8_0", "Q8_0", false, 1, 2);
  check_matvec<IQ3_S, Q3_K>({1, 3, 2, 256, 256}, "IQ3_S", "Q3_K", false, 4, 1);
  check_matvec<IQ2_XXS, IQ1_M>({1, 3, 2, 256, 256}, "IQ2_XXS", "IQ1_M", true, 4, 1);
}

}  // namespace
}  // namespace apr
