#include <gtest/gtest.h>

#include <set>

#include "apr/lower.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

Model model_of(const std::string& fixture) {
  return Model(test::open_gguf(test::model_fixture(fixture)));
}

class Lowering : public ::testing::TestWithParam<std::string> {};

TEST_P(Lowering, CoversEveryOpOnceInOrder) {
  const Model model = model_of(GetParam());
  const Plan plan = build_plan(model);
  for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kCuda}) {
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      const ExecPlan exec = lower(plan, {.backend = backend, .phase = phase, .max_rows = 7});
      int next_op = 0;
      for (const Stage& stage : exec.stages) {
        EXPECT_EQ(stage.first_op, next_op);
        next_op += stage.n_ops;
      }
      EXPECT_EQ(next_op, static_cast<int>(plan.ops.size()));
    }
  }
}

// Runs the plan on labels instead of numbers: every stage writes its outputs' ids over their bytes,
// and every value still holds its own id when a stage reads it.
TEST_P(Lowering, ValuesLiveUntilTheirLastReader) {
  const Model model = model_of(GetParam());
  const Plan plan = build_plan(model);
  for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kCuda}) {
    const ExecPlan exec = lower(
        plan, {.backend = backend, .phase = Phase::kDecode, .max_rows = 3, .max_logit_rows = 2});
    std::vector<ValueId> owner(static_cast<size_t>(exec.workspace_bytes / 4), -1);
    const auto cells = [&](ValueId id) {
      const Value& value = plan.values[static_cast<size_t>(id)];
      const int64_t rows = value.rows == RowDomain::kTokens ? 3 : 2;
      return std::span(owner).subspan(
          static_cast<size_t>(exec.value_offset_bytes[static_cast<size_t>(id)] / 4),
          static_cast<size_t>(rows * value.row_elems()));
    };
    for (const Stage& stage : exec.stages) {
      std::set<ValueId> made;
      for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
        for (const ValueId id : plan.ops[static_cast<size_t>(op_idx)].inputs) {
          if (!made.contains(id)) {
            ASSERT_GE(exec.value_offset_bytes[static_cast<size_t>(id)], 0);
            for (const ValueId cell : cells(id)) {
              ASSERT_EQ(cell, id) << stage.kernel << " reads a value that was overwritten";
            }
          }
        }
        const auto& outputs = plan.ops[static_cast<size_t>(op_idx)].outputs;
        made.insert(outputs.begin(), outputs.end());
      }
      for (const ValueId id : stage.materialised) {
        std::fill(cells(id).begin(), cells(id).end(), id);
      }
    }
    for (const ValueId cell : cells(plan.logits)) {
      ASSERT_EQ(cell, plan.logits);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Lowering,
                         ::testing::Values("tiny-qwen2-legacy", "tiny-qwen3-kmix",
                                           "tiny-qwen3moe-mix", "tiny-qwen35-Q4_K_M",
                                           "tiny-qwen35moe-mix"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Lowering, FusesADenseDecodeLayerIntoSixKernels) {
  const Model model = model_of("tiny-qwen3-kmix");
  const Plan plan = build_plan(model);
  const ExecPlan exec =
      lower(plan, {.backend = BackendKind::kCuda, .phase = Phase::kDecode, .max_rows = 1});
  std::vector<std::string> kernels;
  for (size_t stage = 1; stage <= 6; ++stage) {
    kernels.push_back(exec.stages[stage].kernel);
  }
  EXPECT_EQ(kernels, (std::vector<std::string>{"matvec", "qk_rope_append", "attention_decode",
                                               "matvec", "matvec_swiglu", "matvec"}));
  EXPECT_EQ(exec.stages.size(), 1U + 6U * 6U + 1U);
}

TEST(Lowering, WorkspaceGrowsWithRowsAlone) {
  const Model model = model_of("tiny-qwen3-kmix");
  const Plan plan = build_plan(model);
  const int64_t one = lower(plan, {.max_rows = 16}).workspace_bytes;
  const int64_t two = lower(plan, {.max_rows = 32}).workspace_bytes;
  EXPECT_GT(two, one);
  EXPECT_LE(two, 2 * one);
  const std::string text = print_exec_plan(lower(plan, {.max_rows = 16}));
  EXPECT_NE(text.find("matmul.fast"), std::string::npos);
  EXPECT_NE(text.find("workspace"), std::string::npos);
}

}  // namespace
}  // namespace apr
