// The verdicts of the load gate and the guard, as tables.
#include "generate/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace apr {
namespace {

constexpr double kJustBelow = 1e-9;

GatePosition position(double cosine, bool other_token = false) {
  GatePosition of;
  of.cosine = cosine;
  of.oracle_id = 7;
  of.id = other_token ? 5 : 7;
  return of;
}

TEST(GatePosition, IsTheCosineOfWholeRowsInF64) {
  const std::vector<float> oracle = {3.0F, 4.0F, 0.0F}, found = {4.0F, 3.0F, 0.0F};
  const GatePosition of = gate_position(oracle, found, 2);
  EXPECT_DOUBLE_EQ(of.cosine, 24.0 / 25.0);
  EXPECT_EQ(of.oracle_id, 1);
  EXPECT_EQ(of.id, 0);
  EXPECT_DOUBLE_EQ(of.max_abs_difference, 1.0);
  // A row longer than the vocabulary counts whole in the cosine, not in the choice.
  const std::vector<float> padded = {1.0F, 2.0F, 9.0F};
  EXPECT_EQ(gate_position(padded, padded, 2).id, 1);
  EXPECT_DOUBLE_EQ(gate_position(padded, padded, 2).cosine, 1.0);
  // Sums that f32 cannot hold.
  const std::vector<float> large(1000, 1e30F);
  EXPECT_NEAR(gate_position(large, large, 1000).cosine, 1.0, 1e-12);
}

TEST(GatePosition, OfNothingOrOfNoNumbersIsZero) {
  const std::vector<float> row = {1.0F, 2.0F}, zero = {0.0F, 0.0F}, tiny = {1e-13F, 0.0F};
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const float kInf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& bad :
       {zero, tiny, std::vector<float>{kNan, 1.0F}, std::vector<float>{kInf, 1.0F}}) {
    EXPECT_EQ(gate_position(row, bad, 2).cosine, 0.0);
    EXPECT_EQ(gate_position(bad, row, 2).cosine, 0.0);
  }
  EXPECT_EQ(gate_position(zero, zero, 2).cosine, 0.0);
}

TEST(GatePosition, TakesTheLowestIdOfTies) {
  const std::vector<float> row = {1.0F, 3.0F, 3.0F};
  EXPECT_EQ(gate_position(row, row, 3).id, 1);
}

TEST(LoadGate, PassesFromItsThresholdOnAndRetriesAboveAnother) {
  const struct {
    double cosine;
    bool can_retry;
    LoadVerdict verdict;
  } rows[] = {
      {1.0, true, LoadVerdict::kPass},
      {0.98, true, LoadVerdict::kPass},
      {0.98, false, LoadVerdict::kPass},
      {0.98 - kJustBelow, true, LoadVerdict::kRetry},
      {0.98 - kJustBelow, false, LoadVerdict::kFail},
      {0.90, true, LoadVerdict::kRetry},
      {0.90 - kJustBelow, true, LoadVerdict::kFail},
      {0.0, true, LoadVerdict::kFail},
      {-1.0, true, LoadVerdict::kFail},
      {std::nan(""), true, LoadVerdict::kFail},
  };
  for (const auto& [cosine, can_retry, verdict] : rows) {
    EXPECT_EQ(judge_load(cosine, can_retry), verdict) << cosine << ' ' << can_retry;
  }
}

TEST(LoadGate, FeedsTheTokenThatBeginsATextElseOne) {
  EXPECT_EQ(gate_token(151643), 151643);
  EXPECT_EQ(gate_token(0), 0);
  EXPECT_EQ(gate_token(std::nullopt), 1);
}

TEST(Guard, RejectsByCosineAndByTokenWithTheirOwnThresholds) {
  const struct {
    GatePosition of;
    bool rejected;
  } rows[] = {
      {position(1.0), false},
      {position(0.95), false},
      {position(0.95 - kJustBelow), true},
      {position(0.98, true), false},
      {position(0.98 - kJustBelow, true), true},
      {position(0.97, true), true},
      {position(0.97, false), false},
      {position(0.0, false), true},
  };
  for (const auto& [of, rejected] : rows) {
    const GuardVerdict verdict = judge_guard(std::vector{position(1.0), of});
    EXPECT_EQ(verdict.rejected, rejected) << of.cosine << ' ' << of.id;
    EXPECT_EQ(verdict.min_cosine, std::min(1.0, of.cosine));
  }
}

TEST(Guard, DoesNotJudgeTheFirstPosition) {
  const GuardVerdict verdict = judge_guard(std::vector{position(0.0, true), position(0.999)});
  EXPECT_FALSE(verdict.rejected);
  EXPECT_EQ(verdict.n_judged, 1);
  EXPECT_EQ(verdict.min_cosine, 0.999);
  EXPECT_EQ(judge_guard({}).n_judged, 0);
  EXPECT_FALSE(judge_guard(std::vector{position(0.0)}).rejected);
}

TEST(Guard, NamesTheFirstBadPositionAndTheLowestCosineOfAll) {
  const GuardVerdict verdict = judge_guard(std::vector{
      position(1.0), position(0.99), position(0.97, true), position(0.5), position(0.99)});
  EXPECT_TRUE(verdict.rejected);
  EXPECT_EQ(verdict.first_bad, 2);
  EXPECT_EQ(verdict.n_judged, 4);
  EXPECT_EQ(verdict.min_cosine, 0.5);
  EXPECT_EQ(describe_rejection(verdict),
            "position 2 (argmax 5 != 7, cosine 0.970000); min cosine 0.500000");
  EXPECT_EQ(describe_rejection(judge_guard(std::vector{position(1.0), position(0.5)})),
            "position 1 (argmax 7 == 7, cosine 0.500000); min cosine 0.500000");
}

TEST(Guard, TriesWithoutFp8OnlyWhereFp8MayHaveDoneIt) {
  const auto of = [](std::vector<GatePosition> positions) {
    positions.insert(positions.begin(), position(1.0));
    return judge_guard(positions);
  };
  const struct {
    GuardVerdict verdict;
    bool batched, fp8, retried;
  } rows[] = {
      {of({position(0.94)}), true, true, true},
      {of({position(0.90)}), true, true, true},
      {of({position(0.97, true)}), true, true, true},
      {of({position(0.90 - kJustBelow)}), true, true, false},    // catastrophic
      {of({position(0.94), position(0.5)}), true, true, false},  // later, too
      {of({position(0.96)}), true, true, false},                 // not rejected
      {of({position(0.94)}), false, true, false},                // serial: no FP8 in it
      {of({position(0.94)}), true, false, false},                // FP16 already
  };
  for (const auto& [verdict, batched, fp8, retried] : rows) {
    EXPECT_EQ(may_retry_without_fp8(verdict, batched, fp8), retried)
        << describe_rejection(verdict) << ' ' << batched << ' ' << fp8;
  }
}

TEST(Guard, ProbesTheEndOfThePrompt) {
  std::vector<TokenId> prompt(200);
  std::iota(prompt.begin(), prompt.end(), 0);
  const std::vector<TokenId> probe = guard_probe(prompt, 3);
  ASSERT_EQ(probe.size(), 64U);
  EXPECT_EQ(probe.front(), 136);
  EXPECT_EQ(probe.back(), 199);
  EXPECT_EQ(guard_probe(std::span(prompt).first(64), 3).size(), 64U);
  EXPECT_EQ(guard_probe(std::span(prompt).first(5), 3), (std::vector<TokenId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(guard_probe({}, 3), (std::vector<TokenId>{3}));
  EXPECT_TRUE(guard_probe({}, std::nullopt).empty());
}

TEST(Guard, JudgesTheOtherBatchesToo) {
  const std::vector<GatePosition> good = {position(1.0), position(0.99), position(0.99)};
  const std::vector<GatePosition> bad = {position(0.0), position(0.99), position(0.5)};
  const auto judge = [](const auto& positions, std::vector<std::vector<GatePosition>> batches) {
    return judge_guard(positions, batches);
  };
  const GuardVerdict verdict = judge(good, {bad});
  EXPECT_TRUE(verdict.rejected);
  EXPECT_EQ(verdict.first_bad, 2);
  EXPECT_EQ(verdict.n_judged, 4);
  EXPECT_EQ(verdict.min_cosine, 0.5);
  EXPECT_EQ(judge(bad, {good}).first_bad, 2);
  EXPECT_FALSE(judge(good, {good, good}).rejected);
  EXPECT_EQ(judge(good, {good, bad}).first_bad, 2);
  EXPECT_EQ(judge(good, {good, bad}).n_judged, 6);
}

// A probe as short as a batch of few is such a batch itself.
TEST(Guard, RunsBatchesWhoseKernelsTheProbeDoesNot) {
  using Batches = std::vector<int64_t>;
  EXPECT_EQ(guard_batches(64, 64, 2048), (Batches{8, 16}));
  EXPECT_EQ(guard_batches(64, 150, 2048), (Batches{8, 16, 150}));
  EXPECT_EQ(guard_batches(64, 9000, 2048), (Batches{8, 16, 192}));
  EXPECT_EQ(guard_batches(16, 16, 2048), Batches{8});
  EXPECT_EQ(guard_batches(8, 8, 2048), Batches{});
  EXPECT_EQ(guard_batches(64, 9000, 12), Batches{8});
  EXPECT_EQ(guard_batches(64, 9000, 1), Batches{});
}

TEST(Guard, StandsForThePromptInABatchOfItsKernels) {
  EXPECT_EQ(guard_batch_rows(20, 2048), 20);
  EXPECT_EQ(guard_batch_rows(150, 2048), 150);
  EXPECT_EQ(guard_batch_rows(9000, 2048), 192);
  EXPECT_EQ(guard_batch_rows(9000, 1), 1);
  const struct {
    int64_t judged, rows;
    bool covered;
  } rows[] = {{20, 20, true},    {20, 21, false},    {20, 19, true},   {1, 2, false},
              {191, 192, false}, {191, 191, true},   {192, 192, true}, {192, 193, true},
              {192, 9000, true}, {150, 9000, false}, {1, 1, true}};
  for (const auto& [judged, n_rows, covered] : rows) {
    EXPECT_EQ(covers_rows(judged, n_rows), covered) << judged << ' ' << n_rows;
  }
}

}  // namespace
}  // namespace apr
