// The sampling kernels, run on the host, choose the token that the Sampler chooses: always, bit for
// bit.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "apr/error.h"
#include "apr/generate.h"
#include "support/host_sampler.h"
#include "support/sampler_cases.h"

namespace apr {
namespace {

using test::HostSampler;
using test::SamplerCase;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Runs three steps of a case by both; the logits of each step are rotated ones of the first.
void expect_equal(const SamplerCase& c, int32_t chunk) {
  const auto n_tokens = static_cast<int32_t>(c.logits.size());
  const int64_t first_step = 5;
  Sampler reference(c.params, n_tokens);
  HostSampler kernels(c.params, {}, n_tokens, chunk, c.history, first_step, 3);
  std::vector<TokenId> history = c.history;
  std::vector<float> logits = c.logits;
  for (int64_t step = first_step; step < first_step + 3; ++step) {
    const TokenId expected = reference.sample(logits, history, step);
    std::vector<float> scratch = logits;
    const SampleOutcome found = kernels.run(scratch);
    ASSERT_EQ(found.fault, SampleFault::kNone) << c.name;
    ASSERT_EQ(found.token, expected) << c.name << ", step " << step << ", chunk " << chunk;
    ASSERT_TRUE(kernels.is_clean()) << c.name;
    history.push_back(expected);
    std::rotate(logits.begin(), logits.begin() + 1, logits.end());
  }
}

TEST(SamplerKernels, ChooseAsTheSamplerOverAdversarialLogits) {
  for (const SamplerCase& c : test::adversarial_sampler_cases()) {
    const auto n_tokens = static_cast<int32_t>(c.logits.size());
    expect_equal(c, cuda::sample_chunk(n_tokens));
    expect_equal(c, std::max(1, (n_tokens + 6) / 7));  // seven blocks, an odd cut
    if (HasFailure()) {
      return;
    }
  }
}

TEST(SamplerKernels, ChooseAsTheSamplerOverRandomLogits) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const SamplerCase c = test::random_sampler_case(seed, 700);
    expect_equal(c, static_cast<int32_t>(std::max<uint64_t>(2, seed % 90)));
    if (HasFailure()) {
      return;
    }
  }
}

TEST(SamplerKernels, ChooseAsTheSamplerOverAWholeVocabulary) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SamplerCase c = test::random_sampler_case(seed, 151936, 151936);
    expect_equal(c, cuda::sample_chunk(151936));
    if (HasFailure()) {
      return;
    }
  }
}

// Candidates of the last step in the order of Sampler, with their sums, against what select found.
TEST(SamplerKernels, FloorIsTheLastCandidateOfTopK) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(300);
    for (float& logit : logits) {
      logit = static_cast<float>(static_cast<int>(random() % 13) - 6);  // ties everywhere
    }
    SamplingParams params;
    params.temperature = 1.0;
    params.top_k = 2 + round % 298;
    HostSampler kernels(params, {}, 300, 64, {}, 0, 1);
    std::vector<float> scratch = logits;
    kernels.run(scratch);
    std::vector<float> sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const float floor = sorted[static_cast<size_t>(params.top_k) - 1];
    EXPECT_EQ(logit_of_key(kernels.state().floor_key), floor);
    EXPECT_EQ(kernels.state().n_ties,
              params.top_k - (std::find(sorted.begin(), sorted.end(), floor) - sorted.begin()));
  }
}

TEST(SamplerKernels, KeysOrderAsLogitsDo) {
  const std::vector<float> ascending{-kInf, -FLT_MAX, -1.0F,   -FLT_MIN, -1e-45F,
                                     0.0F,  1e-45F,   FLT_MIN, 1.0F,     FLT_MAX};
  for (size_t idx = 0; idx < ascending.size(); ++idx) {
    const uint32_t key = order_key(ascending[idx]);
    EXPECT_GT(key, idx == 0 ? 0U : order_key(ascending[idx - 1])) << ascending[idx];
    EXPECT_EQ(logit_of_key(key), ascending[idx]);
  }
  EXPECT_EQ(order_key(-0.0F), order_key(0.0F));
}

TEST(SamplerKernels, FaultsAreThoseOfTheSampler) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::vector<float> logits;
    SampleFault fault;
    int32_t id;
  };
  std::vector<float> late(3000, 1.0F), both(3000, 1.0F);
  late[2999] = kInf;
  both[1700] = -nan;
  both[20] = kInf;
  for (const Case& c :
       {Case{{1.0F, nan, 2.0F}, SampleFault::kNan, 1},
        Case{std::vector<float>(9, nan), SampleFault::kNan, 0},
        Case{{1.0F, 2.0F, kInf}, SampleFault::kInf, 2}, Case{late, SampleFault::kInf, 2999},
        Case{both, SampleFault::kInf, 20}, Case{{-kInf, -kInf}, SampleFault::kNothingFinite, 0}}) {
    for (const double temperature : {0.0, 0.8}) {
      SamplingParams params;
      params.temperature = temperature;
      params.repeat_penalty = 1.5;
      params.top_p = 0.9;
      const auto n_tokens = static_cast<int32_t>(c.logits.size());
      const std::vector<TokenId> history{0, 1};
      HostSampler kernels(params, {}, n_tokens, 1024, history, 3, 4);
      std::vector<float> scratch = c.logits;
      const SampleOutcome found = kernels.run(scratch);
      EXPECT_EQ(found.fault, c.fault);
      EXPECT_EQ(found.token, c.id);
      EXPECT_EQ(kernels.state().done, 1);
      EXPECT_EQ(kernels.next().position, 7);
      EXPECT_THROW(Sampler(params, n_tokens).sample(c.logits, history, 3), Error);
    }
  }
  // What the penalties leave without a finite logit.
  SamplingParams params;
  params.repeat_penalty = 100.0;
  HostSampler kernels(params, {}, 1, 1024, std::vector<TokenId>{0}, 0, 4);
  std::vector<float> lowest{-3e38F};
  EXPECT_EQ(kernels.run(lowest).fault, SampleFault::kNothingFinite);
}

TEST(SamplerKernels, ATokenBecomesTheNextStep) {
  HostSampler kernels({}, {}, 100, 1024, {}, 0, 10);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> logits(100, 0.0F);
    logits[static_cast<size_t>(40 + step)] = 1.0F;
    EXPECT_EQ(kernels.run(logits).token, 40 + step);
    EXPECT_EQ(kernels.next_id(), 40 + step);
    EXPECT_EQ(kernels.next().position, 8 + step);
    EXPECT_EQ(kernels.state().done, 0);
  }
}

TEST(SamplerKernels, AfterTheLastTokenNothingIsWritten) {
  SamplingParams params;
  params.presence_penalty = 0.5;
  for (const bool by_stop_id : {true, false}) {
    const std::vector<TokenId> stop_ids{1, 41};
    HostSampler kernels(
        params, by_stop_id ? std::span<const TokenId>(stop_ids) : std::span<const TokenId>(), 100,
        1024, std::vector<TokenId>{5}, 0, by_stop_id ? 10 : 2);
    std::vector<float> logits(100, 0.0F);
    logits[40] = 1.0F;
    EXPECT_EQ(kernels.run(logits).token, 40);
    logits[41] = 9.0F;
    EXPECT_EQ(kernels.run(logits).token, 41);
    EXPECT_EQ(kernels.state().done, 1);
    EXPECT_EQ(kernels.next_id(), 40);  // of the step before
    EXPECT_EQ(kernels.next().position, 8);
    const SamplerState before = kernels.state();
    const std::vector<int32_t> counts(kernels.counts().begin(), kernels.counts().end());
    std::vector<float> replayed(100, 0.0F), same = replayed;
    kernels.run(replayed);
    EXPECT_EQ(std::memcmp(&before, &kernels.state(), sizeof before), 0);
    EXPECT_TRUE(std::equal(counts.begin(), counts.end(), kernels.counts().begin()));
    EXPECT_EQ(replayed, same);
    EXPECT_EQ(kernels.next().position, 8);
  }
}

TEST(SamplerKernels, ManyStopIdsAreCutForTheHostToTest) {
  std::vector<TokenId> stop_ids(100);
  std::iota(stop_ids.begin(), stop_ids.end(), 0);
  EXPECT_EQ(cuda::sampler_settings({}, stop_ids).n_stop_ids, kMostStopIds);
}

TEST(SamplerKernels, BlocksCoverAnyVocabulary) {
  for (const int64_t n : {int64_t{1}, int64_t{1024}, int64_t{1025}, int64_t{151936},
                          int64_t{524288}, int64_t{524289}, kMostSampleTokens}) {
    const int64_t chunk = cuda::sample_chunk(n);
    EXPECT_LE((n + chunk - 1) / chunk, kMostSampleBlocks);
    EXPECT_LT(chunk * 32767, int64_t{1} << 32);  // sums of 15-bit pieces
  }
}

}  // namespace
}  // namespace apr
