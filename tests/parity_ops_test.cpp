// Op by op: the exact value of every op kind, and planted faults of every op of a layer, each named
// as itself and as nothing else. The CPU's fast kernels stand in for a GPU.
#include "generate/parity_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "generate/exact_ops.h"
#include "generate/logit_rows.h"
#include "support/faulty_backend.h"
#include "support/fixtures.h"

namespace apr {
namespace {

constexpr int64_t kPromptTokens = 9;

std::unique_ptr<Backend> cpu(const Model& model, KernelSet kernels, int64_t chunk = 0) {
  CpuBackendOptions options;
  options.n_threads = 2;
  options.context = 64;
  options.prefill_chunk = chunk;
  options.kernels = kernels;
  return make_cpu_backend(model, options);
}

// Recomputes the last row of every output of every op from what the op read.
class ExactChecker final : public StepObserver {
 public:
  void begin(std::span<const TokenId> ids, int64_t first_position) {
    ids_ = ids;
    rows_ = {static_cast<int64_t>(ids.size()) - 1};
    first_position_ = first_position;
  }
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override {
    const Plan& plan = *exec.plan;
    const Op& op = plan.ops[static_cast<size_t>(stage.first_op)];
    ExactStep step{plan, op, {}, ids_, rows_, first_position_, {}, {}, {}};
    for (const ValueId id : op.inputs) {
      step.inputs.push_back(values.read(id));
    }
    if (op.kind == OpKind::kKvAppend) {
      const std::vector<float> written = values.read_state(op.state_idx);
      const auto middle = written.begin() + static_cast<ptrdiff_t>(written.size() / 2);
      keys_[op.state_idx].insert(keys_[op.state_idx].end(), written.begin(), middle);
      values_[op.state_idx].insert(values_[op.state_idx].end(), middle, written.end());
    } else if (op.kind == OpKind::kConv1d || op.kind == OpKind::kDeltaNet) {
      std::vector<float>& before = states_[op.state_idx];
      before.resize(static_cast<size_t>(plan.states[static_cast<size_t>(op.state_idx)].elems));
      step.state = before;
    }
    step.keys = keys_[op.state_idx];
    step.values = values_[op.state_idx];
    for (size_t out_idx = 0; out_idx < op.outputs.size(); ++out_idx) {
      const std::vector<float> rows = values.read(op.outputs[out_idx]);
      const auto n_elems =
          static_cast<size_t>(plan.values[static_cast<size_t>(op.outputs[out_idx])].row_elems());
      const auto row = static_cast<int64_t>(rows.size() / n_elems) - 1;
      const std::vector<double> exact = exact_row(step, out_idx, row);
      double difference = 0.0, size = 1e-30;
      for (size_t idx = 0; idx < exact.size(); ++idx) {
        const double found = rows[static_cast<size_t>(row) * n_elems + idx];
        difference = std::max(difference, std::abs(found - exact[idx]));
        size = std::max(size, std::abs(exact[idx]));
      }
      EXPECT_LE(difference / size, 1e-5) << op.name << " output " << out_idx;
      n_checked += exact.empty() ? 0 : 1;
      kinds.insert(op.kind);
    }
    if (!step.state.empty()) {
      states_[op.state_idx] = values.read_state(op.state_idx);
    }
  }
  int n_checked = 0;
  std::set<OpKind> kinds;

 private:
  std::span<const TokenId> ids_;
  std::vector<int64_t> rows_;
  int64_t first_position_ = 0;
  std::map<int, std::vector<float>> keys_, values_, states_;
};

class OpParityOf : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto path = test::model_path(GetParam());
    if (!path) {
      GTEST_SKIP() << "SKIPPED: " << GetParam() << ".gguf is not here";
    }
    model_ = std::make_unique<Model>(test::open_gguf(*path));
    ids_ = arbitrary_ids(model_->desc().n_tokens, kPromptTokens);
  }

  OpParityReport compare(Backend& backend, int64_t n_decode = 1) {
    const auto oracle = cpu(*model_, KernelSet::kFast);
    return compare_ops(*oracle, backend, ids_, n_decode, true, nullptr);
  }

  // Everything that an op of `layer_idx` leaves behind.
  std::vector<test::Fault> faults_of(const Plan& plan, int layer_idx) const {
    std::vector<test::Fault> faults;
    for (size_t op_idx = 0; op_idx < plan.ops.size(); ++op_idx) {
      const Op& op = plan.ops[op_idx];
      if (op.layer_idx != layer_idx) {
        continue;
      }
      test::Fault fault;
      fault.op_idx = static_cast<int>(op_idx);
      fault.n_experts = model_->desc().moe.n_experts;
      for (fault.out_idx = 0; fault.out_idx < op.outputs.size(); ++fault.out_idx) {
        faults.push_back(fault);
      }
      const bool writes = op.kind == OpKind::kKvAppend || op.kind == OpKind::kConv1d ||
                          op.kind == OpKind::kDeltaNet;
      if (writes) {
        fault.out_idx = 0;
        fault.of_state = true;
        faults.push_back(fault);
      }
    }
    return faults;
  }

  std::unique_ptr<Model> model_;
  std::vector<TokenId> ids_;
};

TEST_P(OpParityOf, ExactValuesAreThoseOfTheKernels) {
  const auto backend = cpu(*model_, KernelSet::kReference);
  ExactChecker checker;
  backend->observe(&checker);
  std::vector<float> logits(static_cast<size_t>(model_->desc().vocab_rows));
  for (const auto& [first, n] : {std::pair{0, 5}, {5, 3}, {8, 1}}) {
    const auto ids =
        std::span<const TokenId>(ids_).subspan(static_cast<size_t>(first), static_cast<size_t>(n));
    const std::vector<int64_t> last = {n - 1};
    checker.begin(ids, first);
    ASSERT_TRUE(backend->forward(ids, last, logits, nullptr));
  }
  EXPECT_GT(checker.n_checked, 100);
  backend->observe(nullptr);
}

TEST_P(OpParityOf, KernelsThatAgreePass) {
  const auto backend = cpu(*model_, KernelSet::kReference, 4);  // chunks of 4, 4 and 1
  const OpParityReport report = compare(*backend, 2);
  EXPECT_TRUE(report.passed()) << report.error;
  EXPECT_GT(report.n_compared, static_cast<int64_t>(build_plan(*model_).ops.size()));
  for (const OpParity& op : report.worst) {
    EXPECT_LE(op.relative_linf, op.bound) << op.op;
  }
}

TEST_P(OpParityOf, APlantedFaultIsNamedAsItselfAndNothingElse) {
  const Plan plan = build_plan(*model_);
  std::set<OpKind> kinds;
  for (const int layer_idx : {-1, 1, 3}) {  // of a hybrid a recurrent and an attention layer
    for (test::Fault fault : faults_of(plan, layer_idx)) {
      const Op& op = plan.ops[static_cast<size_t>(fault.op_idx)];
      for (fault.in_decode = false;; fault.in_decode = true) {
        const auto inner = cpu(*model_, KernelSet::kFast);
        test::FaultyBackend backend(*inner, fault);
        const OpParityReport report = compare(backend);
        EXPECT_TRUE(backend.was_planted()) << op.name;
        ASSERT_EQ(report.failed.size(), 1U) << op.name << (fault.in_decode ? " decode" : "");
        const OpParity& failed = report.failed[0];
        EXPECT_EQ(failed.op, op.name);
        EXPECT_EQ(failed.kind, op.kind);
        EXPECT_EQ(failed.layer_idx, layer_idx);
        EXPECT_EQ(failed.n_tokens == 1, fault.in_decode);
        if (failed.error_to_exact) {
          EXPECT_GT(*failed.error_to_exact, *failed.oracle_error_to_exact) << op.name;
        }
        kinds.insert(op.kind);
        if (fault.in_decode) {
          break;
        }
      }
    }
  }
  EXPECT_GE(kinds.size(), 7U);
}

TEST_P(OpParityOf, ANonFiniteValueIsNamedWhereItIsMade) {
  const Plan plan = build_plan(*model_);
  for (test::Fault fault : faults_of(plan, 1)) {
    const Op& op = plan.ops[static_cast<size_t>(fault.op_idx)];
    const bool is_integer =
        !fault.of_state &&
        (op.outputs.empty() ||
         plan.values[static_cast<size_t>(op.outputs[fault.out_idx])].type == ValueType::kI32);
    if (is_integer) {
      continue;
    }
    fault.non_finite = true;
    const auto inner = cpu(*model_, KernelSet::kFast);
    test::FaultyBackend backend(*inner, fault);
    const OpParityReport report = compare(backend);
    ASSERT_FALSE(report.failed.empty()) << op.name;
    EXPECT_EQ(report.failed[0].op, op.name);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, OpParityOf,
                         ::testing::Values("tiny-qwen2-Q4_K_M", "tiny-qwen3-kmix",
                                           "tiny-qwen3moe-mix", "tiny-qwen35-Q4_K_M",
                                           "tiny-qwen35moe-mix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

TEST(OpBound, IsTightInExactModeAndKnowsAttention) {
  EXPECT_EQ(op_bound(OpKind::kAttention, true), 1e-4);
  EXPECT_EQ(op_bound(OpKind::kMatmul, true), 1e-4);
  EXPECT_LT(op_bound(OpKind::kMatmul, false), op_bound(OpKind::kAttention, false));
}

}  // namespace
}  // namespace apr
