// The GPU against references and against the CPU: greedy ids, logits, chunking, decode after
// prefill.
#include <gtest/gtest.h>

#include "apr/backend.h"
#include "support/compare.h"
#include "support/gpu_model.h"

namespace apr {
namespace {

using cuda::CudaBackend;
using cuda::CudaBackendOptions;

class GpuFixture : public test::GpuModelTest {
 protected:
  std::unique_ptr<CudaBackend> gpu(const CudaBackendOptions& options = {}) const {
    return GpuModelTest::gpu(1024, options);
  }

  static std::vector<float> feed(Backend& backend, std::span<const TokenId> ids) {
    std::vector<float> logits(static_cast<size_t>(backend.desc().vocab_rows));
    while (!ids.empty()) {
      const size_t n = std::min(ids.size(), static_cast<size_t>(backend.max_rows()));
      const std::vector<int64_t> last = {static_cast<int64_t>(n) - 1};
      backend.forward(ids.first(n), last, logits, nullptr);
      ids = ids.subspan(n);
    }
    return logits;
  }

  // Ids of every task must equal the reference; in default mode up to the first step whose margin
  // is below 0.05.
  void check_greedy(CudaBackend& backend, bool exact) {
    const auto refs = test::load_json(*test::ref_path(GetParam() + ".tasks.json"));
    for (const auto& task : refs["cases"]) {
      backend.reset();
      const auto expected = task["greedy_ids"].get<std::vector<TokenId>>();
      const auto margins = task["margins"].get<std::vector<double>>();
      std::vector<float> logits = feed(backend, task["prompt_ids"].get<std::vector<TokenId>>());
      for (size_t step = 0; step < expected.size(); ++step) {
        const auto found = static_cast<TokenId>(test::argmax(logits));
        if (found != expected[step]) {
          EXPECT_TRUE(!exact && margins[step] < 0.05)
              << task["user"] << " step " << step << ": " << found << ", expected "
              << expected[step] << ", margin " << margins[step];
          std::printf("  near tie: %s step %zu margin %.4f\n",
                      task["user"].get<std::string>().c_str(), step, margins[step]);
          break;
        }
        if (step + 1 < expected.size()) {
          logits = feed(backend, std::span(&expected[step], 1));
        }
      }
    }
  }
};

TEST_P(GpuFixture, ExactModeEqualsReferences) {
  const auto backend = gpu({.exact = true});
  check_greedy(*backend, true);
}

TEST_P(GpuFixture, DefaultModeEqualsReferences) {
  const auto backend = gpu();
  check_greedy(*backend, false);
}

TEST_P(GpuFixture, ExactLogitsAreWithinExactBounds) {
  const auto refs = test::load_json(*test::ref_path(GetParam() + ".logits.json"));
  const std::vector<float> expected = test::load_f32(*test::ref_path(GetParam() + ".logits.f32"));
  const size_t vocab = refs["vocab"].get<size_t>();
  const auto backend = gpu({.max_logit_rows = 16, .exact = true});
  size_t row = 0;
  for (const std::string part : {"short", "long"}) {
    const auto ids = refs[part + "_ids"].get<std::vector<TokenId>>();
    const auto positions = refs[part + "_positions"].get<std::vector<int64_t>>();
    backend->reset();
    std::vector<float> logits(positions.size() * vocab);
    backend->forward(ids, positions, logits, nullptr);
    for (size_t i = 0; i < positions.size(); ++i, ++row) {
      EXPECT_TRUE(test::within_exact_bounds(std::span(logits).subspan(i * vocab, vocab),
                                            std::span(expected).subspan(row * vocab, vocab)))
          << part << " position " << positions[i];
    }
  }
}

TEST_P(GpuFixture, DefaultLogitsAreCloseToReferences) {
  const auto refs = test::load_json(*test::ref_path(GetParam() + ".logits.json"));
  const std::vector<float> expected = test::load_f32(*test::ref_path(GetParam() + ".logits.f32"));
  const size_t vocab = refs["vocab"].get<size_t>();
  const auto backend = gpu({.max_logit_rows = 16});
  size_t row = 0;
  for (const std::string part : {"short", "long"}) {
    const auto ids = refs[part + "_ids"].get<std::vector<TokenId>>();
    const auto positions = refs[part + "_positions"].get<std::vector<int64_t>>();
    backend->reset();
    std::vector<float> logits(positions.size() * vocab);
    backend->forward(ids, positions, logits, nullptr);
    for (size_t i = 0; i < positions.size(); ++i, ++row) {
      EXPECT_GE(test::cosine(std::span(logits).subspan(i * vocab, vocab),
                             std::span(expected).subspan(row * vocab, vocab)),
                0.9999)
          << part << " position " << positions[i];
    }
  }
}

TEST_P(GpuFixture, DecodeEqualsPrefillWithinExactBounds) {
  const auto ids = test::load_json(*test::ref_path(GetParam() + ".logits.json"))["short_ids"]
                       .get<std::vector<TokenId>>();
  const auto backend = gpu({.exact = true});
  const std::vector<float> at_once = feed(*backend, ids);
  backend->reset();
  std::vector<float> one_by_one;
  for (const TokenId& id : ids) {
    one_by_one = feed(*backend, std::span(&id, 1));
  }
  EXPECT_TRUE(test::within_exact_bounds(one_by_one, at_once));
  EXPECT_GT(backend->graph_kernels(), 0);
  backend->undo_last();
  EXPECT_EQ(feed(*backend, std::span(ids).last(1)), one_by_one);
}

// Prefills of few tokens at several positions: launched, captured and replayed, with decode steps
// and another prefill between, against launches one by one.
TEST_P(GpuFixture, FewTokensFromAGraphAreTheBitsOfSingleLaunches) {
  for (const auto path : {PrefillPath::kBatched, PrefillPath::kStreamed}) {
    const auto with_graphs = gpu({.prefill_path = path});
    const auto without = gpu({.graphs = false, .prefill_path = path});
    TokenId id = 3;
    for (const int64_t n_tokens : {2, 9, 2, 40, 9, 1, 2, 9, 32, 1, 32, 2}) {
      std::vector<TokenId> ids;
      for (int64_t idx = 0; idx < n_tokens; ++idx) {
        ids.push_back(id = (id * 5 + 7) % 200);
      }
      ASSERT_EQ(feed(*with_graphs, ids), feed(*without, ids))
          << n_tokens << " tokens at " << without->n_past() - n_tokens;
    }
    EXPECT_EQ(with_graphs->n_prefill_graphs(), 3);
    EXPECT_EQ(without->n_prefill_graphs(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, GpuFixture,
                         ::testing::Values("tiny-qwen2-Q4_K_M", "tiny-qwen2-Q8_0",
                                           "tiny-qwen2-float", "tiny-qwen2-legacy",
                                           "tiny-qwen3-Q4_K_M", "tiny-qwen3-Q8_0", "tiny-qwen3-hot",
                                           "tiny-qwen3-iqmix", "tiny-qwen3-kmix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr
