// The least a step costs, against sums by hand over the tensors of fixtures.
#include "plan/cost.h"

#include <gtest/gtest.h>

#include "support/fixtures.h"

namespace apr {
namespace {

Model open(const std::string& name) {
  return Model(test::open_gguf(*test::model_path(name)));
}

double bytes_where(const Model& model, bool (*wanted)(Role)) {
  double sum = 0.0;
  for (const Weight& weight : model.weights()) {
    sum += wanted(weight.role) ? static_cast<double>(weight.size_bytes) : 0.0;
  }
  return sum;
}

bool is_projection(Role role) {
  switch (role) {
    case Role::kAttnQ:
    case Role::kAttnK:
    case Role::kAttnV:
    case Role::kAttnOutput:
    case Role::kFfnGate:
    case Role::kFfnUp:
    case Role::kFfnDown:
      return true;
    default:
      return false;
  }
}

TEST(StepCost, OfADenseDecodeReadsEveryMatrixOnceAndTheHead) {
  const Model model = open("tiny-qwen3-kmix");
  const ModelDesc& desc = model.desc();
  const Plan plan = build_plan(model);
  const Weight& head = *model.find(desc.tied_head ? Role::kTokenEmbd : Role::kOutput);
  const double layers = bytes_where(model, is_projection);
  const StepCost cost = step_cost(plan, 1, 9, 1, 2);
  EXPECT_DOUBLE_EQ(cost.weight_bytes, layers + static_cast<double>(head.size_bytes));
  const double kv_bytes = 2.0 * 10.0 * static_cast<double>(desc.attention.kv_dim()) * 2.0;
  EXPECT_DOUBLE_EQ(cost.state_bytes, static_cast<double>(desc.n_layers) * kv_bytes);
  EXPECT_DOUBLE_EQ(step_cost(plan, 1, 9, 0, 2).weight_bytes, layers);
  EXPECT_DOUBLE_EQ(step_cost(plan, 1, 9, 1, 4).state_bytes, 2.0 * cost.state_bytes);
}

TEST(StepCost, OfAPromptCountsProductsAndCausalAttention) {
  const Model model = open("tiny-qwen3-kmix");
  const ModelDesc& desc = model.desc();
  const Plan plan = build_plan(model);
  double elems = 0.0;
  for (const Weight& weight : model.weights()) {
    elems += is_projection(weight.role) ? static_cast<double>(weight.n_rows * weight.n_cols) : 0.0;
  }
  const double attention = 4.0 * static_cast<double>(desc.attention.q_dim() * desc.n_layers);
  // 3 tokens after 5: 6, 7 and 8 keys.
  EXPECT_DOUBLE_EQ(step_cost(plan, 3, 5, 0, 2).flops, 2.0 * 3.0 * elems + attention * 21.0);
  EXPECT_DOUBLE_EQ(step_cost(plan, 3, 5, 1, 2).flops - step_cost(plan, 3, 5, 0, 2).flops,
                   2.0 * static_cast<double>(desc.vocab_rows * desc.model_dim));
}

TEST(StepCost, OfExpertsCountsThoseInUse) {
  const Model model = open("tiny-qwen3moe-mix");
  const MoeDesc& moe = model.desc().moe;
  const Plan plan = build_plan(model);
  const double experts = bytes_where(model, [](Role role) {
    return role == Role::kFfnGateExps || role == Role::kFfnUpExps || role == Role::kFfnDownExps;
  });
  const double rest = step_cost(plan, 100000, 0, 1, 2).weight_bytes - experts;
  const double used = static_cast<double>(moe.n_used) / static_cast<double>(moe.n_experts);
  EXPECT_NEAR(step_cost(plan, 1, 0, 1, 2).weight_bytes, rest + experts * used, 1.0);
}

TEST(StepCost, OfAHybridMovesItsStatesWhateverTheDepth) {
  const Model model = open("tiny-qwen35-Q4_K_M");
  const Plan plan = build_plan(model);
  double recurrent = 0.0, kv = 0.0;
  for (const StateSpec& state : plan.states) {
    recurrent += 8.0 * static_cast<double>(state.elems);
    kv += 2.0 * static_cast<double>(state.elems_per_position);
  }
  EXPECT_DOUBLE_EQ(step_cost(plan, 1, 99, 1, 2).state_bytes, recurrent + 100.0 * kv);
}

}  // namespace
}  // namespace apr
