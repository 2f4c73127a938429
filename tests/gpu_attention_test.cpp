// Attention on the GPU, from projections to result, against the reference kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/attention.h"
#include "support/attention_problem.h"
#include "support/gpu.h"

namespace apr::cuda {
namespace {

using test::AttentionCase;
using Inputs = test::AttentionInputs;

const KernelLibrary& kernels() {
  static KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  static const DeviceFacts device = use_device(0);
  static const KernelLibrary library = [] {
    std::vector<KernelRow> rows;
    for (const KernelRow& row : kernel_table()) {
      const bool is_ours =
          row.name.starts_with("attention_") || row.name.starts_with("qk_rope_append.");
      if (is_ours && runs_on(row, device.architecture)) {
        rows.push_back(row);
      }
    }
    return KernelLibrary(compiler, rows, device.architecture,
                         static_cast<int64_t>(device.shared_bytes_per_block));
  }();
  return library;
}

DeviceBuffer cache_on_device(const std::vector<float>& values, bool f32) {
  return f32 ? test::to_device<float>(values) : test::to_device<uint16_t>(test::f16_of(values));
}

std::vector<float> cache_on_host(const DeviceBuffer& cache, bool f32) {
  return f32 ? test::to_host<float>(cache) : test::f32_of(test::to_host<uint16_t>(cache));
}

struct Ran {
  std::vector<float> y;
  AttentionPath path;
};

Ran run(const AttentionCase& c) {
  SCOPED_TRACE(describe(c));
  const test::AttentionProblem p(c);
  const DeviceFacts device = use_device(0);
  const Stream stream = create_stream();
  const std::vector<StepState> state{
      {static_cast<int32_t>(c.position), static_cast<int32_t>(c.n_tokens)}};
  const DeviceBuffer step = test::to_device<StepState>(state);
  const Attention attention(
      kernels(), stream, device, p.desc, step.as<StepState>(),
      AttentionOptions{c.f32_cache, c.n_tokens, p.context, c.score_budget_bytes});
  const DeviceBuffer q = test::to_device<float>(p.q_in), k = test::to_device<float>(p.k),
                     v = test::to_device<float>(p.v), q_norm = test::to_device<float>(p.q_norm),
                     k_norm = test::to_device<float>(p.k_norm);
  const DeviceBuffer k_cache = cache_on_device(p.k_cache, c.f32_cache),
                     v_cache = cache_on_device(p.v_cache, c.f32_cache);
  // One more row, as a guard.
  const std::vector<float> nothing(static_cast<size_t>((c.n_tokens + 1) * p.q_dim), std::nanf(""));
  const DeviceBuffer y = test::to_device<float>(nothing);
  AttentionCall call;
  const auto head_dim = static_cast<int32_t>(c.head_dim);
  call.q = {q.as<float>(), p.q_dim * (c.gate ? 2 : 1), head_dim * (c.gate ? 2 : 1)};
  if (c.gate) {
    call.gate = {q.as<float>() + head_dim, call.q.token_stride, call.q.head_stride};
  }
  call.k = k.as<float>();
  call.v = v.as<float>();
  call.q_norm = c.norms ? q_norm.as<float>() : nullptr;
  call.k_norm = c.norms ? k_norm.as<float>() : nullptr;
  call.eps = test::kAttentionEps;
  call.scale = p.scale;
  call.cache = {k_cache.data(), v_cache.data()};
  call.y = y.as<float>();
  call.n_tokens = c.n_tokens;
  call.position = c.position;
  attention.run(call);
  APR_CUDA(api().cudaStreamSynchronize(stream.get()));

  const std::vector<float> keys = cache_on_host(k_cache, c.f32_cache),
                           values = cache_on_host(v_cache, c.f32_cache);
  test::check_cache(p, p.k_cache, p.k_new, keys, "keys");
  test::check_cache(p, p.v_cache, p.v, values, "values");
  std::vector<float> found = test::to_host<float>(y);
  for (int64_t elem = 0; elem < p.q_dim; ++elem) {
    EXPECT_TRUE(std::isnan(found[static_cast<size_t>(c.n_tokens * p.q_dim + elem)]))
        << "behind the result, element " << elem << " was written";
  }
  found.resize(static_cast<size_t>(c.n_tokens * p.q_dim));
  if (!testing::Test::HasFatalFailure()) {
    test::check_result(p, keys, values, found);
  }
  return {found, attention.choice(c.n_tokens).path};
}

constexpr int64_t kPrefillTokens[] = {1, 2, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300};
constexpr int64_t kPositions[] = {0, 1, 37, 500};

// Every number of tokens at every position, each with another group.
void run_prefills(int64_t head_dim, bool f32_cache) {
  int64_t group = 1;
  for (const int64_t n_tokens : kPrefillTokens) {
    for (const int64_t position : kPositions) {
      run({.head_dim = head_dim,
           .group = group,
           .n_tokens = n_tokens,
           .position = position,
           .f32_cache = f32_cache,
           .norms = group % 2 == 0});
      if (testing::Test::HasFailure()) {
        return;
      }
      group = group % 8 + 1;
    }
  }
}

class GpuAttention : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { APR_NEED_GPU(); }
};

TEST_P(GpuAttention, PrefillIsWithinItsBoundOfTheReference) {
  run_prefills(GetParam(), false);
}

TEST_P(GpuAttention, F32PrefillIsWithinItsBoundOfTheReference) {
  run_prefills(GetParam(), true);
}

TEST_P(GpuAttention, LastKeySeenDecides) {
  for (const bool f32_cache : {false, true}) {
    for (const int64_t n_tokens : {1, 5, 64, 129, 250}) {
      for (const int64_t position : {0, 63, 500}) {
        run({.head_dim = GetParam(),
             .group = 3,
             .n_tokens = n_tokens,
             .position = position,
             .f32_cache = f32_cache,
             .inputs = Inputs::kRising});
      }
    }
  }
}

TEST_P(GpuAttention, GatesItsResult) {
  for (const bool f32_cache : {false, true}) {
    for (const int64_t n_tokens : {1, 3, 16, 130}) {
      run({.head_dim = GetParam(),
           .group = 4,
           .n_tokens = n_tokens,
           .position = 70,
           .f32_cache = f32_cache,
           .norms = true,
           .gate = true});
    }
  }
}

TEST_P(GpuAttention, DecodeIsWithinItsBoundOfTheReference) {
  std::vector<int64_t> depths = {127, 128, 129,  255,  256,  257,  511,
                                 512, 513, 2047, 2048, 2049, 5000, 33000};
  for (int64_t depth = 1; depth <= 70; ++depth) {
    depths.push_back(depth);
  }
  for (const bool f32_cache : {false, true}) {
    int64_t group = 1;
    for (const int64_t depth : depths) {
      run({.head_dim = GetParam(),
           .group = group,
           .position = depth - 1,
           .f32_cache = f32_cache,
           .norms = group % 2 == 0});
      if (testing::Test::HasFailure()) {
        return;
      }
      group = group % 8 + 1;
    }
  }
}

// Many kv heads, and one; a step of a few tokens at a depth where splits would pay.
TEST_P(GpuAttention, DecodeTakesAnyNumberOfKvHeads) {
  for (const int64_t n_kv_heads : {1, 3, 8, 40}) {
    for (const int64_t n_tokens : {1, 2, 8}) {
      for (const int64_t position : {4, 700}) {
        run({.head_dim = GetParam(),
             .n_kv_heads = n_kv_heads,
             .group = 4,
             .n_tokens = n_tokens,
             .position = position,
             .norms = true});
      }
    }
  }
}

TEST_P(GpuAttention, RepeatsItsBits) {
  for (const int64_t n_tokens : {1, 7, 200}) {
    const AttentionCase c{
        .head_dim = GetParam(), .group = 4, .n_tokens = n_tokens, .position = 3000};
    const std::vector<float> first = run(c).y;
    EXPECT_EQ(run(c).y, first) << describe(c);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDim, GpuAttention, testing::Values(64, 128, 256),
                         [](const auto& dim) { return fmt::format("d{}", dim.param); });

// A score buffer of a few rows makes passes; the last one is ragged.
TEST(GpuQueryPasses, GiveTheSameAsOne) {
  APR_NEED_GPU();
  AttentionCase c{.head_dim = 128, .group = 4, .n_tokens = 100, .position = 41, .f32_cache = true};
  const Ran whole = run(c);
  EXPECT_EQ(whole.path, AttentionPath::kQueryPasses);
  c.score_budget_bytes = 8 * 211 * 4 * 30;                            // heads, context, bytes, rows
  ASSERT_EQ(query_pass_rows(8, 141, 100, c.score_budget_bytes), 44);  // three passes, 12 the last
  run(c);
  c.score_budget_bytes = 1;  // a row at a time
  run(c);
}

}  // namespace
}  // namespace apr::cuda
