#include <gtest/gtest.h>

#include <set>

#include "apr/lower.h"
#include "support/fixtures.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

Model model_of(const std::string& fixture) {
  return Model(test::open_gguf(test::model_fixture(fixture)));
}

constexpr int64_t kMaxRows = 3, kMaxLogitRows = 2;
constexpr Target kTargets[] = {
    {.backend = BackendKind::kCpu, .max_rows = kMaxRows, .max_logit_rows = kMaxLogitRows},
    {.backend = BackendKind::kCuda, .max_rows = kMaxRows, .max_logit_rows = kMaxLogitRows},
    {.backend = BackendKind::kCuda,
     .max_rows = kMaxRows,
     .max_logit_rows = kMaxLogitRows,
     .f16_rows = true},
    {.backend = BackendKind::kCuda,
     .phase = Phase::kDecode,
     .max_rows = kMaxRows,
     .max_logit_rows = kMaxLogitRows},
};

class Lowering : public ::testing::TestWithParam<std::string> {};

TEST_P(Lowering, CoversEveryOpOnceInOrder) {
  const Model model = model_of(GetParam());
  const Plan plan = build_plan(model);
  for (const Target& target : kTargets) {
    const ExecPlan exec = lower(plan, target);
    int next_op = 0;
    for (const Stage& stage : exec.stages) {
      EXPECT_EQ(stage.first_op, next_op);
      next_op += stage.n_ops;
    }
    EXPECT_EQ(next_op, static_cast<int>(plan.ops.size()));
  }
}

// Runs the plan on labels instead of numbers: every stage writes its outputs' ids over their bytes,
// and every value still holds its own id when a stage reads it.
TEST_P(Lowering, ValuesLiveUntilTheirLastReader) {
  const Model model = model_of(GetParam());
  const Plan plan = build_plan(model);
  for (const Target& target : kTargets) {
    const ExecPlan exec = lower(plan, target);
    std::vector<ValueId> owner(static_cast<size_t>(exec.workspace_bytes / 4), -1);
    const auto cells = [&](ValueId id) {
      const Value& value = plan.values[static_cast<size_t>(id)];
      const int64_t rows = value.rows == RowDomain::kTokens ? kMaxRows : kMaxLogitRows;
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
                         [](const auto& param_info) { return test::param_name(param_info); });

TEST(Lowering, FusesADenseDecodeLayerIntoFiveStages) {
  const Model model = model_of("tiny-qwen3-kmix");
  const Plan plan = build_plan(model);
  const ExecPlan exec =
      lower(plan, {.backend = BackendKind::kCuda, .phase = Phase::kDecode, .max_rows = 1});
  std::vector<std::string> kernels;
  for (size_t stage = 1; stage <= 5; ++stage) {
    kernels.push_back(exec.stages[stage].kernel);
  }
  EXPECT_EQ(kernels,
            (std::vector<std::string>{"matvec", "attention", "matvec", "matvec_swiglu", "matvec"}));
  EXPECT_EQ(exec.stages.size(), 1U + 6U * 5U + 1U);
}

// The router's logits stay inside of its stage; what it chose and the input of the experts do not.
TEST(Lowering, FusesALayerOfExpertsIntoFiveStages) {
  const Model model = model_of("tiny-qwen3moe-mix");
  const Plan plan = build_plan(model);
  for (const bool decode : {true, false}) {
    const ExecPlan exec = lower(plan, {.backend = BackendKind::kCuda,
                                       .phase = decode ? Phase::kDecode : Phase::kPrefill,
                                       .f16_rows = !decode});
    std::vector<std::string> kernels;
    for (size_t stage = 1; stage <= 5; ++stage) {
      kernels.push_back(exec.stages[stage].kernel);
    }
    EXPECT_EQ(
        kernels,
        decode ? (std::vector<std::string>{"matvec", "attention", "matvec", "moe_route", "moe_ffn"})
               : (std::vector<std::string>{"norm_rows", "project_attention", "project_add_norm",
                                           "moe_route", "moe_ffn"}));
    for (size_t id = 0; id < plan.values.size(); ++id) {
      const std::string& name = plan.values[id].name;
      const bool stored = exec.value_offset_bytes[id] >= 0;
      if (name == "blk.0.ffn_gate_inp" || name == "blk.0.ffn_moe") {
        EXPECT_FALSE(stored) << name;
      } else if (name == "blk.0.ffn_norm" || name == "blk.0.ffn_expert_ids" ||
                 name == "blk.0.ffn_expert_weights" || name == "blk.0.ffn_residual") {
        EXPECT_TRUE(stored && exec.value_format[id] == ValueFormat::kF32) << name;
      }
    }
  }
}

// What stands between two products of a layer is one stage with the first of them.
TEST(Lowering, FusesPrefillProductsWithWhatFollowsThem) {
  const Model model = model_of("tiny-qwen3-kmix");
  const Plan plan = build_plan(model);
  const ExecPlan exec = lower(plan, {.backend = BackendKind::kCuda, .f16_rows = true});
  std::vector<std::string> kernels;
  for (const Stage& stage : exec.stages) {
    kernels.push_back(stage.kernel);
  }
  std::vector<std::string> expected = {"embed", "norm_rows"};
  for (int64_t layer = 0; layer < model.desc().n_layers; ++layer) {
    const bool last = layer + 1 == model.desc().n_layers;
    for (const char* kernel : {"project_attention", "project_add_norm", "project_swiglu",
                               last ? "project_add" : "project_add_norm"}) {
      expected.emplace_back(kernel);
    }
  }
  for (const char* kernel : {"take_rows", "rms_norm", "matmul"}) {
    expected.emplace_back(kernel);
  }
  EXPECT_EQ(kernels, expected);
}

// A head's query and its gate are neighbours among the products: the gate is a value of its own.
TEST(Lowering, ProjectsApartFromAttentionWhereQCarriesGates) {
  const Model model = model_of("tiny-qwen35-Q4_K_M");
  const Plan plan = build_plan(model);
  const ExecPlan exec = lower(plan, {.backend = BackendKind::kCuda, .f16_rows = true});
  int64_t n_attentions = 0;
  for (size_t stage = 1; stage < exec.stages.size(); ++stage) {
    EXPECT_NE(exec.stages[stage].kernel, "project_attention");
    if (exec.stages[stage].kernel == "attention") {
      EXPECT_EQ(exec.stages[stage - 1].kernel, "project");
      EXPECT_EQ(exec.stages[stage - 1].n_ops, 3);
      ++n_attentions;
    }
  }
  EXPECT_GT(n_attentions, 0);
}

TEST(Lowering, KeepsF16RowsWhereProductsAloneReadThem) {
  for (const char* fixture : {"tiny-qwen3-kmix", "tiny-qwen3moe-mix", "tiny-qwen35-Q4_K_M"}) {
    const Model model = model_of(fixture);
    const Plan plan = build_plan(model);
    const ExecPlan exec = lower(plan, {.backend = BackendKind::kCuda, .f16_rows = true});
    int64_t n_f16 = 0;
    for (size_t id = 0; id < plan.values.size(); ++id) {
      if (exec.value_format[id] != ValueFormat::kF16Rows) {
        continue;
      }
      ++n_f16;
      EXPECT_EQ(plan.values[id].rows, RowDomain::kTokens);
      for (const Op& op : plan.ops) {
        if (std::count(op.inputs.begin(), op.inputs.end(), static_cast<ValueId>(id)) > 0) {
          EXPECT_EQ(op.kind, OpKind::kMatmul) << plan.values[id].name;
        }
      }
    }
    // Both norms and the activation of a dense layer; of experts, whose kernels read f32, one norm.
    const bool is_moe = model.desc().layers[0].ffn == Ffn::kMoe;
    EXPECT_EQ(n_f16, (is_moe ? 1 : 3) * model.desc().n_layers) << fixture;
    for (const ValueFormat format : lower(plan, {.backend = BackendKind::kCuda}).value_format) {
      EXPECT_EQ(format, ValueFormat::kF32);
    }
  }
}

// With e4m3_rows the same values are E4M3 where every matrix that reads them takes it; padded rows
// and what undoes them fit in the value's place.
TEST(Lowering, KeepsE4m3RowsWhereEveryMatrixTakesThem) {
  const Model model = model_of("tiny-qwen2-legacy");
  const Plan plan = build_plan(model);
  for (const int64_t max_rows : {1, 2, 17, 512}) {
    const Target target{
        .backend = BackendKind::kCuda, .max_rows = max_rows, .f16_rows = true, .e4m3_rows = true};
    const ExecPlan exec = lower(plan, target);
    Target halves = target;
    halves.e4m3_rows = false;
    const ExecPlan f16 = lower(plan, halves);
    int64_t n_e4m3 = 0;
    for (size_t id = 0; id < plan.values.size(); ++id) {
      EXPECT_EQ(exec.value_format[id] == ValueFormat::kF32,
                f16.value_format[id] == ValueFormat::kF32);
      bool all_take = true;
      for (const Op& op : plan.ops) {
        const bool reads = op.kind == OpKind::kMatmul && op.inputs[0] == static_cast<ValueId>(id);
        all_take = all_take && (!reads || takes_e4m3(*op.weights[0]));
      }
      if (exec.value_format[id] != ValueFormat::kF32) {
        EXPECT_EQ(exec.value_format[id] == ValueFormat::kE4m3Rows, all_take)
            << plan.values[id].name;
        n_e4m3 += all_take ? 1 : 0;
        const int64_t end = exec.value_offset_bytes[id] +
                            e4m3_values_bytes(max_rows, plan.values[id].row_elems()) + max_rows * 4;
        EXPECT_LE(end, exec.workspace_bytes);
      }
    }
    EXPECT_EQ(n_e4m3, 3 * model.desc().n_layers);
    EXPECT_NE(print_exec_plan(exec).find(".e4m3 @"), std::string::npos);
  }
  Weight weight;
  weight.n_rows = 32;
  weight.n_cols = 48;
  EXPECT_TRUE(takes_e4m3(weight));
  weight.n_rows = 40;
  EXPECT_FALSE(takes_e4m3(weight));
  weight.n_rows = 32;
  weight.n_cols = 40;
  EXPECT_FALSE(takes_e4m3(weight));
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
