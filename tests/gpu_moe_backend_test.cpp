// Models with experts on the GPU, by the rule of moe_routes.h: against the CPU, which takes over
// each choice of experts that its own router allows.
#include <gtest/gtest.h>

#include "apr/backend.h"
#include "generate/moe_routes.h"
#include "support/compare.h"
#include "support/gpu_model.h"

namespace apr {
namespace {

using cuda::CudaBackend;
using cuda::CudaBackendOptions;

class GpuMoeFixture : public test::GpuModelTest {
 protected:
  void set_up_model() override {
    refs_ = test::load_json(*test::ref_path(GetParam() + ".logits.json"));
  }

  std::unique_ptr<CudaBackend> gpu(const CudaBackendOptions& options) const {
    return GpuModelTest::gpu(1024, options);
  }
  std::vector<TokenId> ids_of(const std::string& part) const {
    return refs_[part + "_ids"].get<std::vector<TokenId>>();
  }

  // Feeds `ids` to both, steps[i] at a time, and compares the logits of each step's last row.
  void check_steps(std::span<const TokenId> ids, std::span<const int64_t> steps, bool exact) {
    const auto backend = gpu({.prefill_chunk = 512, .exact = exact});
    CpuBackendOptions options;
    options.context = 1024;
    options.prefill_chunk = 512;
    const auto oracle = make_cpu_backend(*model_, options);
    RouteRecorder recorder;
    RouteReplay replay(recorder.trace(), route_bound(exact));
    backend->observe(&recorder);
    oracle->observe(&replay);
    const auto vocab = static_cast<size_t>(model_->desc().vocab_rows);
    std::vector<float> found(vocab), expected(vocab);
    double lowest = 1.0;
    for (const int64_t step : steps) {
      const auto part = ids.first(static_cast<size_t>(step));
      ids = ids.subspan(part.size());
      const std::vector<int64_t> last = {step - 1};
      backend->forward(part, last, found, nullptr);
      oracle->forward(part, last, expected, nullptr);
      ASSERT_EQ(replay.failure(), "") << "position " << backend->n_past() - 1;
      const double cosine = test::cosine(found, expected);
      lowest = std::min(lowest, cosine);
      if (exact) {
        EXPECT_TRUE(test::within_exact_bounds(found, expected))
            << "position " << backend->n_past() - 1;
      } else {
        EXPECT_GE(cosine, 0.9999) << "position " << backend->n_past() - 1;
      }
    }
    std::printf("  %s, %s: %lld of %lld choices taken over, lowest cosine %.8f\n",
                GetParam().c_str(), exact ? "exact" : "default",
                static_cast<long long>(replay.n_rerouted()),
                static_cast<long long>(replay.n_choices()), lowest);
  }

  nlohmann::json refs_;
};

TEST_P(GpuMoeFixture, PrefillEqualsTheCpu) {
  const std::vector<TokenId> ids = ids_of("long");
  const auto n_ids = static_cast<int64_t>(ids.size());
  for (const bool exact : {true, false}) {
    const std::vector<int64_t> steps = {2, 7, 64, std::min<int64_t>(n_ids - 73, 300)};
    check_steps(ids, steps, exact);
  }
}

TEST_P(GpuMoeFixture, DecodeEqualsTheCpu) {
  const std::vector<TokenId> ids = ids_of("short");
  const auto n_ids = static_cast<int64_t>(ids.size());
  for (const bool exact : {true, false}) {
    std::vector<int64_t> steps(static_cast<size_t>(std::min<int64_t>(n_ids, 12)), 1);
    check_steps(ids, steps, exact);
  }
}

// One graph serves every choice of experts, and gives the bits of launches one by one.
TEST_P(GpuMoeFixture, DecodeGraphGivesTheBitsOfSingleLaunches) {
  const std::vector<TokenId> ids = ids_of("short");
  for (const bool exact : {true, false}) {
    const auto with_graph = gpu({.exact = exact});
    const auto without = gpu({.exact = exact, .graphs = false});
    const auto vocab = static_cast<size_t>(model_->desc().vocab_rows);
    std::vector<float> found(vocab), expected(vocab);
    const std::vector<int64_t> row = {0};
    for (const TokenId& id : ids) {
      with_graph->forward({&id, 1}, row, found, nullptr);
      without->forward({&id, 1}, row, expected, nullptr);
      ASSERT_EQ(found, expected) << "position " << with_graph->n_past() - 1;
    }
    EXPECT_EQ(with_graph->n_graphs(), 1);
  }
}

// Greedy ids against the references, up to a near tie of the reference: there a choice of experts
// may have moved a logit.
TEST_P(GpuMoeFixture, GreedyIdsEqualTheReferences) {
  constexpr double kNearTie = 0.05;
  const auto tasks = test::load_json(*test::ref_path(GetParam() + ".tasks.json"));
  const auto vocab = static_cast<size_t>(model_->desc().vocab_rows);
  for (const bool exact : {true, false}) {
    const auto backend = gpu({.exact = exact});
    for (const auto& task : tasks["cases"]) {
      backend->reset();
      const auto prompt = task["prompt_ids"].get<std::vector<TokenId>>();
      const auto expected = task["greedy_ids"].get<std::vector<TokenId>>();
      const auto margins = task["margins"].get<std::vector<double>>();
      std::vector<float> logits(vocab);
      std::vector<int64_t> last = {static_cast<int64_t>(prompt.size()) - 1};
      ASSERT_LE(static_cast<int64_t>(prompt.size()), backend->max_rows());
      backend->forward(prompt, last, logits, nullptr);
      last = {0};
      for (size_t step = 0; step < expected.size(); ++step) {
        const auto found = static_cast<TokenId>(test::argmax(logits));
        if (found != expected[step]) {
          EXPECT_LT(margins[step], kNearTie)
              << task["user"] << " step " << step << ": " << found << ", expected "
              << expected[step] << ", exact " << exact;
          std::printf("  near tie: %s step %zu margin %.4f\n",
                      task["user"].get<std::string>().c_str(), step, margins[step]);
          break;
        }
        if (step + 1 < expected.size()) {
          backend->forward(std::span(&expected[step], 1), last, logits, nullptr);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Experts, GpuMoeFixture,
                         ::testing::Values("tiny-qwen3moe-mix", "tiny-qwen3moe-Q4_K_M",
                                           "tiny-qwen3moe-Q8_0"),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr
