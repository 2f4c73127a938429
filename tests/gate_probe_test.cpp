// A probe on a backend and on its oracle, both of the CPU: every position's logits whatever the
// backend's limits, nothing left behind, experts replayed, failures answered.
#include "generate/gate_probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "apr/plan.h"
#include "generate/logit_rows.h"
#include "support/altered_backend.h"
#include "support/expect_error.h"
#include "support/faulty_backend.h"
#include "support/fixtures.h"
#include "support/gguf_writer.h"

namespace apr {
namespace {

using test::Alteration;
using test::AlteredBackend;

class GateProbe : public testing::Test {
 protected:
  explicit GateProbe(const std::string& name) : model_(test::open_gguf(*test::model_path(name))) {}

  std::unique_ptr<Backend> cpu(KernelSet kernels = KernelSet::kFast) const {
    return make_cpu_backend(
        model_, {.n_threads = 1, .context = 130, .max_logit_rows = 65, .kernels = kernels});
  }
  std::vector<TokenId> ids(int64_t n_ids) const {
    return arbitrary_ids(model_.desc().n_tokens, n_ids);
  }

  const Model model_;
};

class GateProbeOfEach : public GateProbe, public testing::WithParamInterface<std::string> {
 protected:
  GateProbeOfEach() : GateProbe(GetParam()) {}
};

TEST_P(GateProbeOfEach, FindsTheCpuLikeItselfWhateverItsLimits) {
  const std::vector<TokenId> probe = ids(64);
  const struct {
    int64_t max_rows, max_logit_rows;
    int n_forwards;
  } rows[] = {{64, 64, 2}, {64, 1, 65}, {64, 40, 3}, {16, 7, 13}, {1, 1, 65}};
  for (const auto& [max_rows, max_logit_rows, n_forwards] : rows) {
    const auto oracle = cpu();
    AlteredBackend backend(cpu(), {.max_rows = max_rows, .max_logit_rows = max_logit_rows});
    const ProbeResult result = run_probe(*oracle, backend, {probe, true}, nullptr);
    ASSERT_FALSE(result.failure);
    ASSERT_EQ(result.positions.size(), 65U);
    for (const GatePosition& position : result.positions) {
      EXPECT_GE(position.cosine, 0.99999);
      EXPECT_EQ(position.id, position.oracle_id);
    }
    EXPECT_EQ(backend.n_forwards, n_forwards) << max_rows << ' ' << max_logit_rows;
    EXPECT_EQ(backend.n_past(), 0);
    EXPECT_EQ(oracle->n_past(), 0);
    EXPECT_EQ(result.wrong_route, "");
  }
}

TEST_P(GateProbeOfEach, SeesTheKernelsOfLongPrompts) {
  const std::vector<TokenId> probe = ids(8);
  for (const int64_t max_logit_rows : {3, 64}) {
    const auto oracle = cpu();
    AlteredBackend backend(cpu(), {.change =
                                       [](int64_t position, int64_t n_rows, std::span<float> row) {
                                         if (n_rows == 129 && position == 7) {
                                           test::turn_away(row, 0.7);
                                         }
                                       },
                                   .max_logit_rows = max_logit_rows});
    const ProbeResult result = run_probe(*oracle, backend, {probe, true, {129}}, nullptr);
    ASSERT_FALSE(result.failure);
    ASSERT_EQ(result.positions.size(), 9U);
    ASSERT_EQ(result.batches.at(0).size(), 8U);
    for (const GatePosition& position : result.positions) {
      EXPECT_GE(position.cosine, 0.99999);
    }
    for (size_t position = 0; position < 8; ++position) {
      EXPECT_NEAR(result.batches[0][position].cosine, position == 7 ? 0.7 : 1.0, 1e-5);
    }
    EXPECT_EQ(backend.n_past(), 0);
    EXPECT_EQ(result.wrong_route, "");
  }
}

TEST_P(GateProbeOfEach, SeesTheKernelsOfFewTokens) {
  const std::vector<TokenId> probe = ids(20);
  for (const int64_t max_logit_rows : {3, 64}) {
    const auto oracle = cpu();
    AlteredBackend backend(cpu(), {.change =
                                       [](int64_t position, int64_t n_rows, std::span<float> row) {
                                         if (n_rows == 8 && position == 5) {
                                           test::turn_away(row, 0.7);
                                         }
                                       },
                                   .max_logit_rows = max_logit_rows});
    const ProbeResult result = run_probe(
        *oracle, backend, {.ids = probe, .with_decode = true, .batch_rows = {8, 30}}, nullptr);
    ASSERT_FALSE(result.failure);
    ASSERT_EQ(result.batches.size(), 2U);
    ASSERT_EQ(result.batches[0].size(), 8U);
    for (size_t position = 0; position < 8; ++position) {
      EXPECT_NEAR(result.batches[0][position].cosine, position == 5 ? 0.7 : 1.0, 1e-5);
    }
    const auto wide = std::span(result.batches).last(1);
    EXPECT_FALSE(judge_guard(result.positions, wide).rejected);
    EXPECT_EQ(judge_guard(result.positions, wide).n_judged, 20 + 19);
    EXPECT_EQ(backend.n_past(), 0);
    EXPECT_EQ(result.wrong_route, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GateProbeOfEach,
                         testing::Values("tiny-qwen3-kmix", "tiny-qwen35-Q4_K_M",
                                         "tiny-qwen3moe-mix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

class GateProbeOfOne : public GateProbe {
 protected:
  GateProbeOfOne() : GateProbe("tiny-qwen3-kmix") {}
};

TEST_F(GateProbeOfOne, SeesWhichPositionIsOther) {
  const auto oracle = cpu();
  AlteredBackend backend(cpu(), {.change = [](int64_t position, int64_t, std::span<float> logits) {
                           if (position == 3 || position == 8) {
                             test::turn_away(logits, position == 3 ? 0.96 : 0.5);
                           }
                         }});
  const ProbeResult result = run_probe(*oracle, backend, {ids(8), true}, nullptr);
  ASSERT_EQ(result.positions.size(), 9U);
  for (size_t position = 0; position < 9; ++position) {
    EXPECT_NEAR(result.positions[position].cosine,
                position == 3   ? 0.96
                : position == 8 ? 0.5
                                : 1.0,
                1e-5);
  }
}

TEST_F(GateProbeOfOne, LeavesTheBackendAsNew) {
  const auto oracle = cpu();
  const auto backend = cpu(), fresh = cpu();
  const std::vector<TokenId> before = ids(5), after = ids(9);
  const std::vector<int64_t> last = {8};
  const auto vocab = static_cast<size_t>(model_.desc().vocab_rows);
  std::vector<float> found(vocab), expected(vocab);
  backend->forward(before, {}, {}, nullptr);
  run_probe(*oracle, *backend, {ids(20), true}, nullptr);
  EXPECT_EQ(backend->n_past(), 0);
  backend->forward(after, last, found, nullptr);
  fresh->forward(after, last, expected, nullptr);
  EXPECT_EQ(found, expected);
}

TEST_F(GateProbeOfOne, AnswersABackendThatFails) {
  for (const bool in_decode : {false, true}) {
    const auto oracle = cpu();
    AlteredBackend backend(cpu(), {.before = [in_decode](int64_t, int64_t n_rows) {
                             if ((n_rows == 1) == in_decode) {
                               throw Error(ErrorCode::kBackendUnavailable, "planted");
                             }
                           }});
    const ProbeResult result = run_probe(*oracle, backend, {ids(8), true}, nullptr);
    ASSERT_TRUE(result.failure);
    EXPECT_STREQ(result.failure->what(), "planted");
    EXPECT_TRUE(result.positions.empty());
    EXPECT_EQ(backend.n_past(), 0);
  }
}

// Before the probe, before the batch of few, before the wide one.
TEST_F(GateProbeOfOne, AnswersABackendThatCannotBeReset) {
  for (const int n_good : {0, 1, 2}) {
    const auto oracle = cpu();
    int n_resets = 0;
    AlteredBackend backend(cpu(), {.before_reset = [&] {
                             if (n_resets++ >= n_good) {
                               throw Error(ErrorCode::kBackendUnavailable, "planted");
                             }
                           }});
    const ProbeResult result =
        run_probe(*oracle, backend, {.ids = ids(12), .batch_rows = {8, 30}}, nullptr);
    ASSERT_TRUE(result.failure) << n_good;
    EXPECT_STREQ(result.failure->what(), "planted");
    EXPECT_EQ(oracle->n_past(), 0);
  }
}

TEST_F(GateProbeOfOne, ThrowsWhatTheOracleThrowsAlsoWhereBothFail) {
  const auto fail = [](int64_t, int64_t) { throw Error(ErrorCode::kInference, "no numbers"); };
  AlteredBackend oracle(cpu(), {.before = fail}), backend(cpu(), {.before = fail});
  test::expect_error(ErrorCode::kInference, "no numbers", [&] {
    run_probe(oracle, backend, {ids(8), true}, nullptr);
  });
}

TEST_F(GateProbeOfOne, EndsWhenCancelled) {
  const auto oracle = cpu(), backend = cpu();
  const std::atomic<bool> cancel = true;
  EXPECT_TRUE(run_probe(*oracle, *backend, {ids(8), true}, &cancel).cancelled);
  EXPECT_EQ(backend->n_past(), 0);
}

// What the first token hides: there a turn by no angle, and a softmax of one.
TEST_F(GateProbeOfOne, SeesInThePromptWhatTheFirstTokenHides) {
  const auto original = [] { return test::open_gguf(*test::model_path("tiny-qwen3-kmix")); };
  test::GgufWriter steep = test::GgufWriter::copy_of(original());  // of another softmax scale
  for (test::WriterTensor& tensor : steep.tensors()) {
    if (tensor.name.ends_with("attn_q_norm.weight")) {
      for (size_t at = 0; at < tensor.data.size(); at += sizeof(float)) {
        float weight = 0.0F;
        std::memcpy(&weight, &tensor.data[at], sizeof weight);
        weight *= 8.0F;
        std::memcpy(&tensor.data[at], &weight, sizeof weight);
      }
    }
  }
  test::GgufWriter turned = test::GgufWriter::copy_of(original());  // of other angles
  turned.set("qwen3.rope.freq_base", 2.0F);
  for (const test::GgufWriter& writer : {steep, turned}) {
    const std::vector<std::byte> image = writer.bytes();
    const Model faulty(test::open_gguf_image(image));
    const auto oracle = cpu(), backend = make_cpu_backend(faulty, {.context = 66});
    const ProbeResult result = run_probe(*oracle, *backend, {ids(24), true}, nullptr);
    EXPECT_GE(result.positions[0].cosine, 0.99999);
    const GuardVerdict verdict = judge_guard(result.positions);
    EXPECT_TRUE(verdict.rejected);
    std::printf("  %s\n", describe_rejection(verdict).c_str());
  }
}

// Another expert than the router's logits allow is not taken over: its logits are judged.
TEST(GateProbeOfExperts, JudgesAWrongChoiceAsItIs) {
  const Model model(test::open_gguf(*test::model_path("tiny-qwen3moe-mix")));
  const Plan plan = build_plan(model);
  const CpuBackendOptions options{.n_threads = 1, .context = 66, .max_logit_rows = 65};
  const auto oracle = make_cpu_backend(model, options), inner = make_cpu_backend(model, options);
  test::Fault fault;
  fault.n_experts = model.desc().moe.n_experts;
  while (plan.ops[static_cast<size_t>(++fault.op_idx)].kind != OpKind::kMoeRoute) {
  }
  test::FaultyBackend backend(*inner, fault);
  const ProbeResult result =
      run_probe(*oracle, backend, {arbitrary_ids(model.desc().n_tokens, 24), true}, nullptr);
  EXPECT_TRUE(backend.was_planted());
  EXPECT_NE(result.wrong_route, "");
  EXPECT_LT(judge_guard(result.positions).min_cosine, 0.9999);
}

}  // namespace
}  // namespace apr
