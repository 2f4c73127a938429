// On a GPU: every value of every stage against the CPU from the GPU's own inputs, and planted
// faults named where they are planted.
#include <gtest/gtest.h>

#include <cstring>

#include "generate/logit_rows.h"
#include "generate/parity_ops.h"
#include "support/faulty_backend.h"
#include "support/gpu_model.h"

namespace apr {
namespace {

class GpuOps : public test::GpuModelTest {
 protected:
  void set_up_model() override {
    ids_ = arbitrary_ids(model_->desc().n_tokens, 70);
    oracle_ = make_cpu_backend(*model_, {.context = 128});
  }
  std::unique_ptr<cuda::CudaBackend> gpu(bool exact) const {
    return GpuModelTest::gpu(128, {.exact = exact});
  }
  static void explain(const OpParityReport& report) {
    for (const OpParity& op : report.failed) {
      ADD_FAILURE() << op.op << " " << op.value << " of " << op.kernel << ", " << op.n_tokens
                    << " tokens, row " << op.worst_row << ": " << op.relative_linf << " > "
                    << op.bound << "; to exact " << op.error_to_exact.value_or(-1) << ", oracle "
                    << op.oracle_error_to_exact.value_or(-1);
    }
    for (const OpParity& op : report.worst) {
      std::printf("  %-14s %.3g of %.3g (%s, %s)\n", op_kind_name(op.kind), op.relative_linf,
                  op.bound, op.op.c_str(), op.kernel.c_str());
    }
    EXPECT_EQ(report.error, "");
  }

  std::unique_ptr<Backend> oracle_;
  std::vector<TokenId> ids_;
};

TEST_P(GpuOps, AgreeInExactMode) {
  const auto backend = gpu(true);
  explain(compare_ops(*oracle_, *backend, ids_, 3, true, nullptr));
}

TEST_P(GpuOps, AgreeInDefaultMode) {
  const auto backend = gpu(false);
  explain(compare_ops(*oracle_, *backend, ids_, 3, false, nullptr));
}

// A fault of a stage that makes several values is in the one that was changed.
TEST_P(GpuOps, PlantedFaultsAreNamed) {
  const Plan plan = build_plan(*model_);
  const auto inner = gpu(true);
  int n_planted = 0;
  for (size_t op_idx = 0; op_idx < plan.ops.size(); ++op_idx) {
    const Op& op = plan.ops[op_idx];
    if (op.layer_idx != 1) {
      continue;
    }
    for (const bool in_decode : {false, true}) {
      test::Fault fault;
      fault.op_idx = static_cast<int>(op_idx);
      fault.n_experts = model_->desc().moe.n_experts;
      fault.in_decode = in_decode;
      fault.of_state = op.kind == OpKind::kKvAppend;
      test::FaultyBackend backend(*inner, fault);
      const OpParityReport report = compare_ops(*oracle_, backend, ids_, 1, true, nullptr);
      if (!backend.was_planted()) {
        continue;  // inside of a fused stage
      }
      ++n_planted;
      ASSERT_FALSE(report.failed.empty()) << op.name;
      EXPECT_EQ(report.failed[0].op, op.name) << report.failed[0].kernel;
    }
  }
  EXPECT_GE(n_planted, 10);
}

INSTANTIATE_TEST_SUITE_P(Dense, GpuOps,
                         ::testing::Values("tiny-qwen2-Q4_K_M", "tiny-qwen2-float",
                                           "tiny-qwen2-legacy", "tiny-qwen3-Q8_0", "tiny-qwen3-hot",
                                           "tiny-qwen3-iqmix", "tiny-qwen3-kmix",
                                           "tiny-qwen3moe-mix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

TEST(GpuSpeed, OfTheDeviceIsMeasured) {
  APR_NEED_GPU();
  const cuda::DeviceSpeed speed = cuda::measure_speed(0);
  EXPECT_GT(speed.bytes_per_s, 5e10);
  EXPECT_GT(speed.flops_per_s, 5e12);
  std::printf("  copy %.0f GB/s, f16 products %.1f TFLOP/s\n", speed.bytes_per_s / 1e9,
              speed.flops_per_s / 1e12);
}

}  // namespace
}  // namespace apr
