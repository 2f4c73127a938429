// Measures, bounds and verdicts of apr parity: pure functions.
#include "generate/parity_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "generate/logit_rows.h"
#include "support/scripted_backend.h"

namespace apr {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(LogitsParity, OfEqualRowsIsPerfect) {
  const std::vector<float> row = {1.0F, -2.0F, 3.0F, 0.5F};
  const LogitsParity parity = compare_logits(row, row, 4);
  EXPECT_DOUBLE_EQ(parity.cosine, 1.0);
  EXPECT_EQ(parity.kl, 0.0);
  EXPECT_EQ(parity.relative_linf, 0.0);
  EXPECT_EQ(parity.id, 2);
  EXPECT_EQ(parity.oracle_id, 2);
  EXPECT_DOUBLE_EQ(parity.margin, 2.0);
  EXPECT_DOUBLE_EQ(parity.oracle_max_abs, 3.0);
}

TEST(LogitsParity, MeasuresKnownDifferences) {
  const std::vector<float> oracle = {3.0F, 4.0F}, other = {4.0F, 3.0F};
  const LogitsParity parity = compare_logits(oracle, other, 2);
  EXPECT_NEAR(parity.cosine, 24.0 / 25.0, 1e-12);
  EXPECT_NEAR(parity.relative_linf, 0.25, 1e-12);
  const double p = 1.0 / (1.0 + std::exp(-1.0));  // of the token that leads by 1
  EXPECT_NEAR(parity.kl, p * std::log(p / (1 - p)) + (1 - p) * std::log((1 - p) / p), 1e-12);
  EXPECT_EQ(parity.oracle_id, 1);
  EXPECT_EQ(parity.id, 0);
}

TEST(LogitsParity, LeavesPaddedRowsOutOfTheChoice) {
  const std::vector<float> oracle = {1.0F, 2.0F, 9.0F}, other = {1.0F, 2.0F, -9.0F};
  const LogitsParity parity = compare_logits(oracle, other, 2);
  EXPECT_EQ(parity.oracle_id, 1);
  EXPECT_EQ(parity.id, 1);
  EXPECT_EQ(parity.kl, 0.0);
  EXPECT_LT(parity.cosine, 0.0);  // but a row is a row
}

TEST(LogitsParity, OfANonFiniteRowFailsEveryBound) {
  const std::vector<float> oracle = {1.0F, 2.0F, 3.0F};
  for (const float bad : {kNaN, INFINITY, -INFINITY}) {
    for (size_t where = 0; where < 3; ++where) {
      std::vector<float> other = oracle;
      other[where] = bad;
      LogitsParity parity = compare_logits(oracle, other, 3);
      EXPECT_EQ(parity.relative_linf, INFINITY);
      for (const bool exact : {false, true}) {
        EXPECT_NE(position_failure(parity, parity_bounds(exact, true)), "") << bad << where;
      }
    }
  }
}

LogitsParity good() {
  LogitsParity parity;
  parity.cosine = 1.0;
  parity.oracle_id = parity.id = 7;
  parity.margin = 1.0;
  parity.oracle_max_abs = 20.0;
  return parity;
}

TEST(ParityBounds, OfExactMode) {
  const ParityBounds bounds = parity_bounds(true, true);
  LogitsParity parity = good();
  EXPECT_EQ(position_failure(parity, bounds), "");
  parity.cosine = 0.99998;
  EXPECT_NE(position_failure(parity, bounds).find("cosine"), std::string::npos);
  parity = good();
  parity.relative_linf = 1.01e-4;
  EXPECT_NE(position_failure(parity, bounds).find("Linf"), std::string::npos);
  parity = good();
  parity.id = 8;
  parity.margin = 2e-4 * 20.0 * 1.01;
  EXPECT_NE(position_failure(parity, bounds).find("token 8 instead of 7"), std::string::npos);
  parity.margin = 2e-4 * 20.0 * 0.99;
  EXPECT_EQ(position_failure(parity, bounds), "");
}

TEST(ParityBounds, OfDefaultMode) {
  const ParityBounds bounds = parity_bounds(false, true);
  LogitsParity parity = good();
  parity.cosine = 0.99991;
  parity.relative_linf = 0.5;
  EXPECT_EQ(position_failure(parity, bounds), "");
  parity.cosine = 0.99989;
  EXPECT_NE(position_failure(parity, bounds), "");
  parity = good();
  parity.id = 8;
  parity.margin = 0.0499;
  EXPECT_EQ(position_failure(parity, bounds), "");
  parity.margin = 0.05;
  EXPECT_NE(position_failure(parity, bounds), "");
}

TEST(ParityBounds, OfEightBitActivationsAllowTenTimesTheDistance) {
  const ParityBounds bounds = parity_bounds(false, true, kDp4aCosine);
  LogitsParity parity = good();
  parity.kl = 1.0;
  parity.cosine = 0.99901;
  EXPECT_TRUE(judge(std::vector{parity}, bounds).passed);
  parity.cosine = 0.99899;
  EXPECT_FALSE(judge(std::vector{parity}, bounds).passed);
  parity = good();
  parity.id = 8;
  parity.margin = 0.158;
  EXPECT_EQ(position_failure(parity, bounds), "");
  parity.margin = 0.159;
  EXPECT_NE(position_failure(parity, bounds), "");
  // Exact mode has none.
  EXPECT_EQ(parity_bounds(true, true, kDp4aCosine).min_cosine, 0.99999);
  const ParityBounds fp8 = parity_bounds(false, true, kFp8Cosine);
  EXPECT_EQ(fp8.min_cosine, 0.95);
  EXPECT_NEAR(fp8.margin, 0.05 * std::sqrt(500.0), 1e-9);
  EXPECT_FALSE(fp8.max_mean_kl);
}

TEST(ParityVerdict, NamesTheFirstBadPositionAndListsNearTies) {
  std::vector<LogitsParity> positions(4, good());
  positions[1].id = 8;
  positions[1].margin = 0.01;
  ParityVerdict verdict = judge(positions, parity_bounds(false, true));
  EXPECT_TRUE(verdict.passed);
  EXPECT_EQ(verdict.near_ties, std::vector<size_t>{1});
  positions[2].cosine = 0.5;
  positions[2].position = 42;
  positions[2].is_decode = true;
  positions[3].cosine = 0.1;
  verdict = judge(positions, parity_bounds(false, true));
  EXPECT_FALSE(verdict.passed);
  EXPECT_NE(verdict.reason.find("position 42 (decode)"), std::string::npos) << verdict.reason;
  EXPECT_DOUBLE_EQ(verdict.min_cosine, 0.1);
}

TEST(ParityVerdict, JudgesTheMeanKlOfTrainedWeightsAlone) {
  std::vector<LogitsParity> positions(2, good());
  positions[0].kl = 3e-4;
  EXPECT_FALSE(judge(positions, parity_bounds(false, true)).passed);
  EXPECT_TRUE(judge(positions, parity_bounds(false, false)).passed);
  EXPECT_DOUBLE_EQ(judge(positions, parity_bounds(false, false)).mean_kl, 1.5e-4);
  positions[0].kl = 1.9e-4;
  EXPECT_TRUE(judge(positions, parity_bounds(false, true)).passed);
}

TEST(ParityVerdict, ANaNIsNeverTheBest) {
  std::vector<LogitsParity> positions(2, good());
  positions[1].cosine = kNaN;
  const ParityVerdict verdict = judge(positions, parity_bounds(true, true));
  EXPECT_FALSE(verdict.passed);
  EXPECT_TRUE(std::isnan(verdict.min_cosine));
}

TEST(LogitRows, ComeInOrderAndChunksEndWhereRowsAreFull) {
  test::ScriptedBackend backend(50, 100, 8, {1, 2, 3, 4});  // 8 tokens a step, one row of logits
  const std::vector<TokenId> ids = arbitrary_ids(50, 20);
  std::vector<int64_t> seen;
  LogitRowCallbacks callbacks;
  callbacks.on_row = [&](int64_t position, std::span<const float>) { seen.push_back(position); };
  EXPECT_TRUE(run_logit_rows(backend, ids, {2, 3, 15}, callbacks, nullptr));
  EXPECT_EQ(seen, (std::vector<int64_t>{2, 3, 15}));
  EXPECT_EQ(backend.n_past(), 20);
  EXPECT_EQ(backend.calls[0].ids.size(), 3U);  // the next row would be its second
}

TEST(ArbitraryIds, AreInTheVocabularyAndTheSameEveryTime) {
  const std::vector<TokenId> ids = arbitrary_ids(4096, 1000);
  EXPECT_EQ(ids, arbitrary_ids(4096, 1000));
  for (const TokenId id : ids) {
    EXPECT_TRUE(id >= 0 && id < 4096);
  }
  EXPECT_GT(std::set<TokenId>(ids.begin(), ids.end()).size(), 800U);
}

}  // namespace
}  // namespace apr
