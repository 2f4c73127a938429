// The rule by which another choice of experts is taken over or is wrong.
#include "generate/moe_routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/reference/ops.h"
#include "support/fixtures.h"

namespace apr {
namespace {

using Ids = std::vector<int32_t>;

const std::vector<float> kLogits = {4.0F,  1.0F, 3.0F, 3.001F,  // token 0
                                    -8.0F, 2.0F, 2.0F, 1.0F};   // token 1
const Ids kOracle = {0, 3, 1, 2};

RouteVerdict judge(const Ids& found, double bound) {
  return judge_routes(kLogits, found, kOracle, 2, bound);
}

TEST(JudgeRoutes, TakesOverWhatIsWithinTheBoundAlone) {
  using Tokens = std::vector<int64_t>;
  EXPECT_EQ(judge(kOracle, 0.0).rerouted, Tokens());
  EXPECT_EQ(judge({0, 2, 1, 2}, 3e-4).rerouted, Tokens{0});  // 0.001 of 4
  EXPECT_EQ(judge({0, 2, 1, 2}, 2e-4).wrong, Tokens{0});
  EXPECT_EQ(judge({0, 3, 2, 1}, 0.0).rerouted, Tokens{1});  // a tie in the other order
  EXPECT_EQ(judge({3, 0, 1, 2}, 3e-4).wrong, Tokens{0});    // an order that the logits do not allow
  const RouteVerdict both = judge({0, 2, 1, 3}, 3e-4);
  EXPECT_EQ(both.rerouted, Tokens{0});
  EXPECT_EQ(both.wrong, Tokens{1});
  EXPECT_NEAR(both.wrong_gap, 1.0 / 8.0, 1e-6);
}

TEST(JudgeRoutes, RefusesWhatIsNoChoice) {
  for (const Ids& found : {Ids{0, 0, 1, 2}, Ids{0, 4, 1, 2}, Ids{-1, 3, 1, 2}}) {
    const RouteVerdict verdict = judge(found, 10.0);
    EXPECT_EQ(verdict.wrong.size(), 1U);
    EXPECT_TRUE(std::isinf(verdict.wrong_gap));
  }
}

TEST(RouteTrace, AgreesOverItsFirstPositions) {
  RouteTrace a, b;
  a.append(7, 2, Ids{0, 1, 2, 3});
  a.append(7, 2, Ids{4, 5});
  b.append(7, 2, Ids{0, 1, 2, 3, 5, 4});
  EXPECT_TRUE(a.agrees(b, 2));
  EXPECT_FALSE(a.agrees(b, 3));
  EXPECT_TRUE(a.agrees(a, 3));
  const auto last = a.chosen(7, 2, 1);
  EXPECT_EQ(Ids(last.begin(), last.end()), (Ids{4, 5}));
  b.append(9, 2, Ids{0, 1});
  EXPECT_FALSE(a.agrees(b, 1));
}

TEST(RouteWeights, AreTheReferences) {
  Ids ids(4);
  std::vector<float> weights(4);
  cpu::reference::moe_route({kLogits.data(), 2, 4, 2, ids.data(), weights.data()});
  EXPECT_EQ(ids, kOracle);
  EXPECT_EQ(route_weights(kLogits, ids, 2), weights);
}

// A backend whose router is off by a little in one layer, and by much.
class Nudge final : public StepObserver {
 public:
  Nudge(RouteRecorder& recorder, bool wrong) : recorder_(recorder), wrong_(wrong) {}
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override {
    const Op& op = exec.plan->ops[static_cast<size_t>(stage.first_op)];
    if (op.kind == OpKind::kMatmul && op.name == "blk.2.ffn_gate_inp") {
      // The least chosen expert and the best one left out of token 1 become equal; or not at all.
      std::vector<float> logits = values.read(op.outputs[0]);
      const size_t n_experts = logits.size() / n_tokens_;
      std::vector<float> row(logits.begin() + static_cast<ptrdiff_t>(n_experts),
                             logits.begin() + static_cast<ptrdiff_t>(2 * n_experts));
      std::vector<size_t> order(n_experts);
      for (size_t idx = 0; idx < n_experts; ++idx) {
        order[idx] = idx;
      }
      std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
      gap = (row[order[1]] - row[order[2]]) /
            std::max(std::abs(row[order[0]]), std::abs(row[order[n_experts - 1]]));
      logits[n_experts + (wrong_ ? order[n_experts - 1] : order[2])] = row[order[1]] + 1e-4F;
      values.write(op.outputs[0], logits);
    }
    recorder_.after_stage(exec, stage, values);
  }
  static constexpr size_t n_tokens_ = 3;
  double gap = 0.0;

 private:
  RouteRecorder& recorder_;
  bool wrong_;
};

TEST(RouteReplay, MakesTheOracleFollowAndCounts) {
  const auto path = test::model_path("tiny-qwen3moe-mix");
  ASSERT_TRUE(path);
  const Model model(test::open_gguf(*path));
  const std::vector<TokenId> ids = {5, 900, 77};
  const std::vector<int64_t> rows = {0, 1, 2};
  std::vector<float> found(static_cast<size_t>(3 * model.desc().vocab_rows)), expected(found),
      own(found);
  const auto backends = [&] {
    CpuBackendOptions options;
    options.context = 16;
    options.max_logit_rows = 3;
    return make_cpu_backend(model, options);
  };
  for (const bool wrong : {false, true}) {
    RouteRecorder recorder;
    Nudge nudge(recorder, wrong);
    const auto nudged = backends(), replayed = backends(), plain = backends();
    nudged->observe(&nudge);
    nudged->forward(ids, rows, found, nullptr);
    RouteReplay replay(recorder.trace(), wrong ? 1e-3 : nudge.gap * 1.01 + 1e-6);
    replayed->observe(&replay);
    replayed->forward(ids, rows, expected, nullptr);
    plain->forward(ids, rows, own, nullptr);
    EXPECT_EQ(replay.n_choices(), 3 * model.desc().n_layers);
    const auto vocab = static_cast<ptrdiff_t>(model.desc().vocab_rows);
    EXPECT_TRUE(std::equal(own.begin(), own.begin() + vocab, expected.begin()));
    if (wrong) {
      EXPECT_NE(replay.failure().find("position 1: blk.2.ffn_expert_ids (layer 2)"),
                std::string::npos)
          << replay.failure();

    } else {
      EXPECT_EQ(replay.failure(), "");
      EXPECT_GE(replay.n_rerouted(), 1);
      EXPECT_TRUE(replay.rerouted().at(1).front() == 2 && !replay.rerouted().contains(0));
      EXPECT_TRUE(replay.taken().agrees(recorder.trace(), 3));
      EXPECT_NE(own, expected);  // row 1 and those after it
    }
  }
}

}  // namespace
}  // namespace apr
