#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "apr/error.h"
#include "apr/generate.h"
#include "sample_math.cuh"

namespace apr {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

SamplingParams at_temperature(double temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

TokenId sample_once(const SamplingParams& params, const std::vector<float>& logits,
                    const std::vector<TokenId>& history = {}, int64_t step = 0) {
  Sampler sampler(params, static_cast<int64_t>(logits.size()));
  return sampler.sample(logits, history, step);
}

// The tokens that `n_steps` draws choose, with their counts.
std::map<TokenId, int> draw_counts(const SamplingParams& params, const std::vector<float>& logits,
                                   int n_steps) {
  Sampler sampler(params, static_cast<int64_t>(logits.size()));
  std::map<TokenId, int> counts;
  for (int step = 0; step < n_steps; ++step) {
    ++counts[sampler.sample(logits, {}, step)];
  }
  return counts;
}

std::set<TokenId> drawn_tokens(const SamplingParams& params, const std::vector<float>& logits) {
  std::set<TokenId> tokens;
  for (const auto& [id, count] : draw_counts(params, logits, 4000)) {
    tokens.insert(id);
  }
  return tokens;
}

std::string error_of(const SamplingParams& params, const std::vector<float>& logits) {
  try {
    sample_once(params, logits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInference);
    return error.what();
  }
  return "no error";
}

TEST(Philox, MatchesKnownAnswersOfRandom123) {
  const auto words = [](const PhiloxBlock& counter, uint32_t key0, uint32_t key1) {
    const PhiloxBlock block = philox4x32_10(counter, key0, key1);
    return std::vector<uint32_t>(block.words, block.words + 4);
  };
  using Words = std::vector<uint32_t>;
  EXPECT_EQ(words({{0, 0, 0, 0}}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ScaleToIsTheHighHalfOfTheProduct) {
  __extension__ using Wide = unsigned __int128;
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    const uint64_t bits = random(), total = random() >> (round % 64);
    EXPECT_EQ(scale_to(bits, total), static_cast<uint64_t>(Wide{bits} * total >> 64));
  }
  EXPECT_EQ(scale_to(~uint64_t{0}, ~uint64_t{0}), ~uint64_t{0} - 1);
}

// Bound: 2^-50 relative of weight_of, 2^-52 of std::exp, and up to 1 for the floor.
TEST(Weights, FollowTheExponential) {
  for (const int bits : {44, 30}) {
    EXPECT_EQ(weight_of(0.0, bits), uint64_t{1} << bits);
    EXPECT_EQ(weight_of(-kInf, bits), 0U);
    EXPECT_EQ(weight_of(-1e300, bits), 0U);
    for (double x = -0.001; x > -40.0; x -= 0.0137) {
      const double exact = std::ldexp(std::exp(x), bits);
      EXPECT_NEAR(static_cast<double>(weight_of(x, bits)), exact, exact * 0x1p-49 + 1.0) << x;
    }
  }
}

TEST(Weights, SumsOfAWholeVocabularyStayBelow2To63) {
  for (const int64_t n : {int64_t{1}, int64_t{4096}, int64_t{262144}, int64_t{2147483647}}) {
    EXPECT_LT(static_cast<double>(n) * std::ldexp(1.0, weight_bits(n)), 0x1p63);
    EXPECT_GE(weight_bits(n), 30);
  }
}

// Every weight and draw as the first version of the sampler gave them (FNV-1a over the values).
TEST(Weights, AreBitForBitWhatTheyWere) {
  uint64_t hash = 1469598103934665603U;
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
  for (const int bits : {44, 30, 43}) {
    for (int idx = 0; idx < 1000000; ++idx) {
      add(weight_of(-idx * 3.3e-5, bits));
    }
  }
  EXPECT_EQ(hash, 0xd3852845cd9c2aa9U);
  for (uint64_t step = 0; step < 100000; ++step) {
    add(scale_to(philox_u64(step * 0x9E3779B97F4A7C15U, step), ~step >> 1));
  }
  for (const int64_t n : {1, 2, 3, 151936, 262143, 262144, 262145, 2147483647}) {
    add(static_cast<uint64_t>(weight_bits(n)));
  }
  EXPECT_EQ(hash, 0x0e81650ebb0c868cU);
}

TEST(Weights, TheGoalOfTopPIsTheLeastSumThatReachesIt) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    const uint64_t total = (random() >> (1 + round % 62)) + 1;
    const double top_p =
        round % 7 == 0 ? 1.0 - 0x1p-53 : static_cast<double>(random() >> 11) * 0x1p-53;
    const double wanted = top_p * static_cast<double>(total);
    const uint64_t goal = top_p_goal(top_p, total);
    EXPECT_GE(goal, 1U);
    EXPECT_LE(goal, total);
    EXPECT_GE(static_cast<double>(goal), wanted);
    EXPECT_TRUE(goal == 1 || static_cast<double>(goal - 1) < wanted) << top_p << " of " << total;
  }
  EXPECT_EQ(top_p_goal(0.0, 1), 1U);
  EXPECT_EQ(top_p_goal(0.0, (uint64_t{1} << 63) - 1), 1U);
}

TEST(Sampler, DrawsTheTokensThatPhiloxPrescribes) {
  // Expected by an independent program from the known-answer-tested Philox and exact softmax.
  const std::vector<float> logits{0.0F, 1.0F, 2.0F, 3.0F};
  const std::vector<TokenId> at_1{2, 1, 1, 3, 3, 3, 3, 3, 3, 2, 2, 3,
                                  3, 3, 3, 2, 3, 1, 3, 3, 2, 3, 3, 3};
  const std::vector<TokenId> at_half{3, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3,
                                     3, 3, 3, 3, 3, 2, 3, 3, 3, 3, 3, 3};
  std::vector<TokenId> drawn_1, drawn_half;
  for (int step = 0; step < 24; ++step) {
    drawn_1.push_back(sample_once(at_temperature(1.0), logits, {}, step));
    drawn_half.push_back(sample_once(at_temperature(0.5), logits, {}, step));
  }
  EXPECT_EQ(drawn_1, at_1);
  EXPECT_EQ(drawn_half, at_half);
}

// The share of each token in n draws lies within 5 standard deviations of its probability.
TEST(Sampler, FollowsTheSoftmaxDistribution) {
  const std::vector<float> logits{0.5F, -1.0F, 2.0F, 0.0F, 1.0F};
  constexpr int kDraws = 20000;
  for (const double temperature : {0.8, 1.0, 3.0}) {
    auto counts = draw_counts(at_temperature(temperature), logits, kDraws);
    double total = 0.0;
    for (const float logit : logits) {
      total += std::exp(logit / temperature);
    }
    for (size_t id = 0; id < logits.size(); ++id) {
      const double p = std::exp(logits[id] / temperature) / total;
      EXPECT_NEAR(counts[static_cast<TokenId>(id)] / double{kDraws}, p,
                  5.0 * std::sqrt(p * (1.0 - p) / kDraws))
          << "token " << id << " at temperature " << temperature;
    }
  }
}

TEST(Sampler, TemperatureZeroEqualsTopKOne) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  SamplingParams top_1 = at_temperature(0.8);
  top_1.top_k = 1;
  for (int round = 0; round < 50; ++round) {
    std::vector<float> logits(500);
    for (float& logit : logits) {
      logit = std::round(normal(random));  // many ties
    }
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    EXPECT_EQ(sample_once(at_temperature(0.0), logits), best);
    EXPECT_EQ(sample_once(top_1, logits, {}, round), best);
  }
}

TEST(Sampler, TinyTemperatureDoesNotOverflow) {
  const std::vector<float> logits{-3e38F, 3e38F, 1.0F, 2.9e38F};
  for (const double temperature : {1e-9, 1e-300, 5e-324}) {
    EXPECT_EQ(drawn_tokens(at_temperature(temperature), logits), (std::set<TokenId>{1}));
  }
}

TEST(Sampler, HighTemperatureReachesAllOfTopK) {
  std::vector<float> logits(100, 0.0F);
  logits[99] = 1.0F;
  const auto tokens = drawn_tokens(at_temperature(100.0), logits);
  EXPECT_EQ(tokens.size(), 40U);  // the best and the 39 lowest of the ties
  EXPECT_TRUE(tokens.contains(99) && tokens.contains(38) && !tokens.contains(39));
}

TEST(Sampler, TopKAtOrAboveTheVocabularyKeepsAll) {
  const std::vector<float> logits{0.0F, 0.1F, 0.2F};
  for (const int64_t top_k : {int64_t{0}, int64_t{3}, int64_t{4}, int64_t{2147483647}}) {
    SamplingParams params = at_temperature(1.0);
    params.top_k = top_k;
    EXPECT_EQ(drawn_tokens(params, logits).size(), 3U) << top_k;
  }
  SamplingParams params = at_temperature(1.0);
  params.top_k = 2;
  EXPECT_EQ(drawn_tokens(params, logits), (std::set<TokenId>{1, 2}));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  std::vector<float> logits;
  for (const double p : {0.05, 0.5, 0.15, 0.3}) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  const std::vector<std::pair<double, std::set<TokenId>>> cases{
      {0.0, {1}},        {1e-9, {1}},          {0.49, {1}},
      {0.51, {1, 3}},    {0.79, {1, 3}},       {0.81, {1, 2, 3}},
      {0.94, {1, 2, 3}}, {0.96, {0, 1, 2, 3}}, {1.0, {0, 1, 2, 3}}};
  for (const auto& [top_p, expected] : cases) {
    for (const int64_t top_k : {int64_t{0}, int64_t{40}}) {
      SamplingParams params = at_temperature(1.0);
      params.top_p = top_p;
      params.top_k = top_k;
      EXPECT_EQ(drawn_tokens(params, logits), expected) << top_p;
    }
  }
}

TEST(Sampler, TopPSortsAsFarAsItReaches) {
  const std::vector<float> logits(5000, 0.0F);  // the set of 2500 is the lower half by id
  SamplingParams params = at_temperature(1.0);
  params.top_k = 0;
  params.top_p = 0.5;
  const auto tokens = drawn_tokens(params, logits);
  EXPECT_GT(tokens.size(), 1500U);
  EXPECT_LT(*tokens.rbegin(), 2500);
}

TEST(Sampler, MinPKeepsTokensNearTheBest) {
  std::vector<float> logits;
  for (const double p : {0.05, 0.4, 0.15, 0.4}) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  const std::vector<std::pair<double, std::set<TokenId>>> cases{
      {0.0, {0, 1, 2, 3}}, {0.12, {0, 1, 2, 3}}, {0.13, {1, 2, 3}}, {0.38, {1, 3}}, {1.0, {1, 3}}};
  for (const auto& [min_p, expected] : cases) {
    SamplingParams params = at_temperature(1.0);
    params.min_p = min_p;
    EXPECT_EQ(drawn_tokens(params, logits), expected) << min_p;
  }
}

// Filters judge the distribution before the temperature: a hot one does not widen the set.
TEST(Sampler, FiltersComeBeforeTheTemperature) {
  const std::vector<float> logits{std::log(0.9F), std::log(0.06F), std::log(0.04F)};
  SamplingParams params = at_temperature(100.0);
  params.top_p = 0.95;
  EXPECT_EQ(drawn_tokens(params, logits), (std::set<TokenId>{0, 1}));
}

TEST(Sampler, SeedAndStepAloneDecide) {
  std::vector<float> logits(50, 0.0F);
  SamplingParams other = at_temperature(1.0);
  other.seed = 12345;
  std::vector<TokenId> first, again, different;
  Sampler warm(at_temperature(1.0), 50);
  for (int step = 0; step < 32; ++step) {
    first.push_back(warm.sample(logits, {}, step));
    different.push_back(sample_once(other, logits, {}, step));
  }
  for (int step = 31; step >= 0; --step) {  // any order, a fresh sampler each time
    again.insert(again.begin(), sample_once(at_temperature(1.0), logits, {}, step));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, different);
}

TEST(Sampler, NonFiniteLogitsAreNamed) {
  for (const double temperature : {0.0, 0.8}) {
    const SamplingParams params = at_temperature(temperature);
    EXPECT_NE(error_of(params, {1.0F, kNan, 2.0F}).find("non-finite logits: NaN for token 1"),
              std::string::npos);
    EXPECT_NE(error_of(params, std::vector<float>(9, kNan)).find("NaN for token 0"),
              std::string::npos);
    EXPECT_NE(error_of(params, {1.0F, 2.0F, kInf}).find("non-finite logits: +inf for token 2"),
              std::string::npos);
    EXPECT_NE(error_of(params, {-kInf, -kInf}).find("non-finite logits: none of 2"),
              std::string::npos);
  }
}

TEST(Sampler, MinusInfinityIsNeverChosen) {
  const std::vector<float> logits{-kInf, -1.0F, -kInf, -1.0F};
  EXPECT_EQ(sample_once(at_temperature(0.0), logits), 1);
  EXPECT_EQ(drawn_tokens(at_temperature(1.0), logits), (std::set<TokenId>{1, 3}));
}

TEST(Sampler, AllEqualGivesTheLowestId) {
  EXPECT_EQ(sample_once(at_temperature(0.0), std::vector<float>(10, -2.5F)), 0);
}

TEST(Sampler, PaddedIdsAreNeverChosenNorJudged) {
  const std::vector<float> logits{0.0F, 1.0F, 9.0F, kNan, kInf};  // two tokens, three padded rows
  for (const double temperature : {0.0, 100.0}) {
    Sampler sampler(at_temperature(temperature), 2);
    for (int step = 0; step < 200; ++step) {
      EXPECT_LT(sampler.sample(logits, std::vector<TokenId>{2, 4, -1}, step), 2);
    }
  }
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegative) {
  SamplingParams params;
  params.repeat_penalty = 2.0;
  EXPECT_EQ(sample_once(params, {3.0F, 2.0F}, {0}), 1);    // 1.5 < 2
  EXPECT_EQ(sample_once(params, {3.0F, 1.4F}, {0}), 0);    // 1.5 > 1.4
  EXPECT_EQ(sample_once(params, {-1.0F, -1.5F}, {0}), 1);  // -2 < -1.5
  EXPECT_EQ(sample_once(params, {3.0F, 2.0F}, {0, 0, 0}), 1);
  EXPECT_EQ(sample_once(params, {3.0F, 1.4F}, {0, 0, 0}), 0);  // once, however often it occurred
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
  SamplingParams presence, frequency;
  presence.presence_penalty = 0.75;
  frequency.frequency_penalty = 0.75;
  const std::vector<float> logits{2.0F, 1.0F};
  EXPECT_EQ(sample_once(presence, logits, {0, 0, 0}), 0);
  EXPECT_EQ(sample_once(frequency, logits, {0}), 0);
  EXPECT_EQ(sample_once(frequency, logits, {0, 0}), 1);
  presence.presence_penalty = -0.75;  // negative: favours what occurred
  EXPECT_EQ(sample_once(presence, {1.0F, 1.5F}, {0}), 0);
}

TEST(Sampler, PenaltiesLookBackTheWindow) {
  SamplingParams params;
  params.presence_penalty = 5.0;
  const std::vector<float> logits{2.0F, 1.0F, 0.0F};
  std::vector<TokenId> history(100, 2);
  history[35] = 0;  // the last but 64
  EXPECT_EQ(sample_once(params, logits, history), 0);
  history[36] = 0;
  EXPECT_EQ(sample_once(params, logits, history), 1);
  history[36] = 2;
  params.repeat_last_n = -1;
  EXPECT_EQ(sample_once(params, logits, history), 1);
  params.repeat_last_n = 0;
  EXPECT_EQ(sample_once(params, logits, {0, 0, 0}), 0);
}

TEST(Sampler, PenaltiesThatOverflowStayOrdered) {
  SamplingParams params;
  params.repeat_penalty = 0.01;
  EXPECT_EQ(sample_once(params, {3e38F, 3.1e38F}, {0}), 0);
  params.repeat_penalty = 100.0;
  EXPECT_EQ(sample_once(params, {-3e38F, -3.1e38F}, {0}), 1);
}

TEST(Sampler, RefusesValuesOutOfRange) {
  for (const SamplingRange& range : sampling_ranges()) {
    for (const double bad : {range.min - 1.0, range.max + 1.0, -1e300, 1e300, double{kNan}}) {
      if (range.real == nullptr && !(std::abs(bad) < 1e18)) {
        continue;  // not a whole number
      }
      SamplingParams params;
      if (range.real != nullptr) {
        params.*range.real = bad;
      } else {
        params.*range.whole = static_cast<int64_t>(bad);
      }
      try {
        Sampler sampler(params, 10);
        ADD_FAILURE() << range.name << " took " << bad;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUsage);
        EXPECT_NE(std::string(error.what()).find(range.name), std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace apr
