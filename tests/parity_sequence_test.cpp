// Logits of a model with experts, beside an oracle that takes over another choice of experts where
// its router allows it. The CPU's plain loops, with a choice changed on purpose, stand in for a
// GPU.
#include "generate/parity_sequence.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "generate/logit_rows.h"
#include "generate/parity_ops.h"
#include "support/fixtures.h"
#include "support/wrapped_backend.h"

namespace apr {
namespace {

// One token's choice in one layer: the least of its experts gives way to another.
struct OtherChoice {
  int op_idx = -1;  // none
  int layer_idx = -1;
  int64_t position = 0;
  int32_t expert = 0;
  double gap = 0.0;  // between the two experts' logits, relative to the largest
};

// The choice whose alternative is nearest (or farthest) among positions [first, end).
class ChoiceFinder final : public StepObserver {
 public:
  ChoiceFinder(int64_t first, int64_t end, bool nearest)
      : first_(first), end_(end), nearest_(nearest) {}
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override {
    const Op& op = exec.plan->ops[static_cast<size_t>(stage.first_op)];
    if (op.kind != OpKind::kMoeRoute) {
      return;
    }
    const std::vector<float> logits = values.read(op.inputs[0]);
    const std::vector<int32_t> ids = as_ids(values.read(op.outputs[0]));
    const auto n_used = static_cast<size_t>(op.n_used);
    const size_t n_tokens = ids.size() / n_used, n_experts = logits.size() / n_tokens;
    int64_t& n_done = n_done_[stage.first_op];
    for (size_t token = 0; token < n_tokens; ++token, ++n_done) {
      const auto row = std::span(logits).subspan(token * n_experts, n_experts);
      const auto chosen = std::span(ids).subspan(token * n_used, n_used);
      double largest = 0.0;
      for (const float logit : row) {
        largest = std::max(largest, std::abs(static_cast<double>(logit)));
      }
      for (size_t expert = 0; expert < n_experts; ++expert) {
        const auto id = static_cast<int32_t>(expert);
        const double gap = (row[static_cast<size_t>(chosen[n_used - 1])] - row[expert]) / largest;
        const bool is_other = std::find(chosen.begin(), chosen.end(), id) == chosen.end();
        const bool is_better =
            choice.op_idx < 0 || (nearest_ ? gap < choice.gap : gap > choice.gap);
        if (is_other && is_better && n_done >= first_ && n_done < end_) {
          choice = {stage.first_op, op.layer_idx, n_done, id, gap};
        }
      }
    }
  }
  OtherChoice choice;

 private:
  int64_t first_, end_;
  bool nearest_;
  std::map<int, int64_t> n_done_;
};

// Makes the other choice whenever a step that `applies` has the position.
class OtherBackend final : public test::WrappedBackend, private StepObserver {
 public:
  OtherBackend(Backend& inner, const OtherChoice& choice) : WrappedBackend(inner), choice_(choice) {
    inner_.observe(this);
  }
  ~OtherBackend() override { inner_.observe(nullptr); }
  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override {
    n_tokens_ = static_cast<int64_t>(ids.size());
    return inner_.forward(ids, logit_rows, logits, cancel);
  }
  void observe(StepObserver* observer) override { observer_ = observer; }

  bool only_unwatched = false;

 private:
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override {
    const int64_t row = choice_.position - inner_.n_past();
    const bool applies = !only_unwatched || observer_ == nullptr;
    if (stage.first_op == choice_.op_idx && row >= 0 && row < n_tokens_ && applies) {
      const Op& op = exec.plan->ops[static_cast<size_t>(stage.first_op)];
      const auto n_used = static_cast<size_t>(op.n_used);
      const std::vector<float> logits = values.read(op.inputs[0]);
      std::vector<int32_t> ids = as_ids(values.read(op.outputs[0]));
      ids[static_cast<size_t>(row) * n_used + n_used - 1] = choice_.expert;
      values.write(op.outputs[0], as_float_bits(ids));
      values.write(op.outputs[1], route_weights(logits, ids, n_tokens_));
    }
    if (observer_ != nullptr) {
      observer_->after_stage(exec, stage, values);
    }
  }

  OtherChoice choice_;
  StepObserver* observer_ = nullptr;
  int64_t n_tokens_ = 0;
};

constexpr int64_t kPrompt = 24, kDecode = 5;

class SequenceOfExperts : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = std::make_unique<Model>(test::open_gguf(*test::model_path("tiny-qwen3moe-mix")));
    oracle_backend_ = cpu(KernelSet::kFast);
    inner_ = cpu(KernelSet::kReference);
    n_tokens_ = std::min(model_->desc().n_tokens, model_->desc().vocab_rows);
    for (int64_t position = 0; position < kPrompt; ++position) {
      all_.insert(position);
    }
  }
  std::unique_ptr<Backend> cpu(KernelSet kernels) const {
    CpuBackendOptions options;
    options.n_threads = 2;
    options.context = 64;
    options.prefill_chunk = 16;  // steps of several tokens, and several of them
    options.max_logit_rows = 32;
    options.kernels = kernels;
    return make_cpu_backend(*model_, options);
  }
  // Runs the oracle over the prompt and as many tokens more as it likes best.
  void run(ParityOracle& oracle) const {
    oracle.run(arbitrary_ids(n_tokens_, kPrompt), all_, kDecode, n_tokens_);
  }
  OtherChoice find(int64_t first, int64_t end, bool nearest) {
    ChoiceFinder finder(first, end, nearest);
    ParityOracle oracle(*oracle_backend_, 0.0, {});
    run(oracle);
    const auto ids = oracle.ids();
    std::vector<float> none;
    oracle_backend_->reset();
    oracle_backend_->observe(&finder);
    for (const TokenId& id : ids) {
      oracle_backend_->forward({&id, 1}, {}, none, nullptr);
    }
    oracle_backend_->observe(nullptr);
    return finder.choice;
  }
  SequenceParity compare(const OtherChoice& choice, double bound, int64_t& n_replays) {
    ParityOracle oracle(*oracle_backend_, bound, {});
    run(oracle);
    OtherBackend backend(*inner_, choice);
    SequenceParity parity =
        compare_sequence(oracle, backend, kPrompt, kDecode, all_, n_tokens_, {});
    n_replays = oracle.n_replays();
    return parity;
  }
  // The worst of the positions before, and from `position` on.
  static std::pair<double, double> worst(const SequenceParity& parity, int64_t position) {
    double before = 0.0, after = 0.0;
    for (const LogitsParity& at : parity.positions) {
      double& target = at.position < position ? before : after;
      target = std::max(target, at.relative_linf);
    }
    return {before, after};
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> oracle_backend_, inner_;
  int64_t n_tokens_ = 0;
  std::set<int64_t> all_;
};

TEST_F(SequenceOfExperts, WithTheSameChoicesNeedsOnePassOfTheOracle) {
  int64_t n_replays = -1;
  const SequenceParity parity = compare({}, 1e-9, n_replays);
  EXPECT_EQ(n_replays, 0);
  EXPECT_EQ(parity.routes.failure, "");
  EXPECT_TRUE(parity.routes.rerouted.empty());
  EXPECT_EQ(parity.routes.n_choices, (kPrompt + kDecode) * model_->desc().n_layers);
  EXPECT_EQ(parity.n_unsteady, 0);
  ASSERT_EQ(parity.positions.size(), static_cast<size_t>(kPrompt + kDecode));
  EXPECT_TRUE(judge(parity.positions, parity_bounds(true, true)).passed);
}

TEST_F(SequenceOfExperts, WithAnotherChoiceWithinTheBoundIsJudgedAgainstTheOracleThatMadeIt) {
  for (const auto& [first, end] : {std::pair<int64_t, int64_t>{1, kPrompt},
                                   {kPrompt, kPrompt + kDecode}}) {  // in the prompt, in decode
    const OtherChoice choice = find(first, end, true);
    int64_t n_replays = -1;
    const SequenceParity parity = compare(choice, choice.gap * 1.01, n_replays);
    EXPECT_EQ(parity.routes.failure, "");
    EXPECT_EQ(n_replays, 1);
    EXPECT_EQ(parity.routes.rerouted, (ReroutedLayers{{choice.position, {choice.layer_idx}}}));
    EXPECT_TRUE(judge(parity.positions, parity_bounds(true, true)).passed);
    EXPECT_EQ(parity.n_unsteady, 0);
  }
}

TEST_F(SequenceOfExperts, WithAnotherChoiceBeyondTheBoundFailsByName) {
  const OtherChoice nearest = find(1, kPrompt + kDecode, true);
  const OtherChoice farthest = find(1, kPrompt + kDecode, false);
  for (const OtherChoice& choice : {nearest, farthest}) {
    int64_t n_replays = -1;
    const SequenceParity parity = compare(choice, choice.gap * 0.99, n_replays);
    EXPECT_EQ(parity.routes.failure.find(
                  fmt::format("position {}: blk.{}.ffn_expert_ids (layer {}) chose other experts",
                              choice.position, choice.layer_idx, choice.layer_idx)),
              0U)
        << parity.routes.failure;
  }
  // What it does to the logits: without the rule they would be called wrong, or right by luck.
  int64_t n_replays = -1;
  const auto [before, after] =
      worst(compare(farthest, farthest.gap * 0.99, n_replays), farthest.position);
  EXPECT_LT(before, 1e-4);
  EXPECT_GT(after, 1e-3);
}

TEST_F(SequenceOfExperts, WithNoChoiceAtAllFails) {
  OtherChoice choice = find(1, kPrompt, true);
  for (const int32_t expert : {-1, 1000}) {
    choice.expert = expert;
    RouteTrace trace;
    ParityOracle oracle(*oracle_backend_, 1e9, {});
    run(oracle);
    RouteRecorder recorder;
    // The plain loops cannot run it: only the record is changed.
    inner_->observe(&recorder);
    std::vector<float> none;
    inner_->reset();
    inner_->forward(oracle.ids().first(8), {}, none, nullptr);
    inner_->observe(nullptr);
    const auto n_used = model_->desc().moe.n_used;
    const Plan plan = build_plan(*model_);
    for (size_t op_idx = 0; op_idx < plan.ops.size(); ++op_idx) {
      if (plan.ops[op_idx].kind == OpKind::kMoeRoute) {
        const auto chosen = recorder.trace().chosen(static_cast<int>(op_idx), 0, 8);
        std::vector<int32_t> ids(chosen.begin(), chosen.end());
        if (static_cast<int>(op_idx) == choice.op_idx) {
          ids[static_cast<size_t>(3 * n_used)] = expert;
        }
        trace.append(static_cast<int>(op_idx), n_used, ids);
      }
    }
    RouteParity routes;
    oracle.rows(trace, 8, routes);
    EXPECT_NE(routes.failure.find("position 3: "), std::string::npos) << routes.failure;
    EXPECT_NE(routes.failure.find("holds no choice of"), std::string::npos) << routes.failure;
  }
}

TEST_F(SequenceOfExperts, OfManyLengthsReplaysOnlyWhereSomethingDiffers) {
  const OtherChoice choice = find(4, kPrompt - 4, true);
  const int64_t shorter = choice.position, just = choice.position + 1, longer = kPrompt;
  for (const bool longest_first : {true, false}) {
    ParityOracle oracle(*oracle_backend_, choice.gap * 1.01, {});
    oracle.run(arbitrary_ids(n_tokens_, kPrompt), all_, 0, n_tokens_);
    OtherBackend backend(*inner_, choice);
    std::vector<int64_t> lengths = {shorter, just, longer};
    if (longest_first) {
      std::reverse(lengths.begin(), lengths.end());
    }
    for (const int64_t length : lengths) {
      const SequenceParity parity =
          compare_sequence(oracle, backend, length, 0, {length - 1}, n_tokens_, {});
      EXPECT_EQ(parity.routes.rerouted.size(), length > choice.position ? 1U : 0U);
      EXPECT_EQ(parity.routes.failure, "");
      EXPECT_TRUE(judge(parity.positions, parity_bounds(true, true)).passed) << length;
    }
    EXPECT_EQ(oracle.n_replays(), longest_first ? 1 : 2);
  }
}

TEST_F(SequenceOfExperts, ThatIsNotTheSameTwiceIsCounted) {
  const OtherChoice choice = find(1, kPrompt, false);
  ParityOracle oracle(*oracle_backend_, 1e-3, {});
  run(oracle);
  OtherBackend backend(*inner_, choice);
  backend.only_unwatched = true;
  const SequenceParity parity =
      compare_sequence(oracle, backend, kPrompt, kDecode, all_, n_tokens_, {});
  EXPECT_EQ(parity.n_unsteady, kPrompt + kDecode - choice.position);
  EXPECT_FALSE(judge(parity.positions, parity_bounds(true, true)).passed);
}

TEST_F(SequenceOfExperts, OpByOpTheSameRuleHolds) {
  const auto ids = arbitrary_ids(n_tokens_, kPrompt);
  const OtherChoice nearest = find(1, kPrompt, true), farthest = find(1, kPrompt, false);
  ASSERT_LT(nearest.gap, op_bound(OpKind::kMoeRoute, false));
  ASSERT_GT(farthest.gap, op_bound(OpKind::kMoeRoute, false));
  OtherBackend near(*inner_, nearest);
  OpParityReport report = compare_ops(*oracle_backend_, near, ids, 1, false, nullptr);
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.rerouted, (ReroutedLayers{{nearest.position, {nearest.layer_idx}}}));
  OtherBackend far(*inner_, farthest);
  report = compare_ops(*oracle_backend_, far, ids, 1, false, nullptr);
  ASSERT_FALSE(report.failed.empty());
  EXPECT_EQ(report.failed[0].op, fmt::format("blk.{}.ffn_expert_ids", farthest.layer_idx));
  EXPECT_TRUE(report.rerouted.empty());
}

TEST(SequenceWithoutExperts, IsNotWatchedAndNeedsOnePass) {
  const Model model(test::open_gguf(*test::model_path("tiny-qwen3-kmix")));
  CpuBackendOptions options;
  options.n_threads = 2;
  options.context = 32;
  options.max_logit_rows = 8;
  const auto fast = make_cpu_backend(model, options);
  options.kernels = KernelSet::kReference;
  const auto plain = make_cpu_backend(model, options);
  const int64_t n_tokens = model.desc().n_tokens;
  ParityOracle oracle(*fast, 0.0, {});
  oracle.run(arbitrary_ids(n_tokens, 12), {3, 11}, 3, n_tokens);
  EXPECT_EQ(oracle.ids().size(), 15U);
  const SequenceParity parity = compare_sequence(oracle, *plain, 12, 3, {3, 11}, n_tokens, {});
  EXPECT_EQ(parity.routes.n_choices, 0);
  EXPECT_EQ(oracle.n_replays(), 0);
  std::vector<std::pair<int64_t, bool>> positions;
  for (const LogitsParity& at : parity.positions) {
    positions.emplace_back(at.position, at.is_decode);
  }
  EXPECT_EQ(positions, (std::vector<std::pair<int64_t, bool>>{
                           {3, false}, {11, false}, {12, true}, {13, true}, {14, true}}));
  EXPECT_TRUE(judge(parity.positions, parity_bounds(true, true)).passed);
}

}  // namespace
}  // namespace apr
