// Every fixture model on the CPU against independent references: greedy ids, logits, chunking.
#include <gtest/gtest.h>

#include <numeric>

#include "apr/backend.h"
#include "support/compare.h"
#include "support/fixtures.h"

namespace apr {
namespace {

using test::within_exact_bounds;

class Fixture : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto path = test::model_path(GetParam());
    if (!path) {
      GTEST_SKIP() << "SKIPPED: " << GetParam() << ".gguf is neither in tests/data nor in "
                   << APR_SHARED << "/fixtures";
    }
    model_ = std::make_unique<Model>(test::open_gguf(*path));
  }

  std::unique_ptr<Backend> backend(int64_t chunk = 0, KernelSet kernels = KernelSet::kFast,
                                   int64_t max_logit_rows = 1) const {
    return make_cpu_backend(*model_, {.n_threads = 2,
                                      .context = 1024,
                                      .prefill_chunk = chunk,
                                      .max_logit_rows = max_logit_rows,
                                      .kernels = kernels});
  }

  nlohmann::json reference(const std::string& suffix) const {
    const auto path = test::ref_path(GetParam() + suffix);
    EXPECT_TRUE(path) << GetParam() << suffix;
    return test::load_json(*path);
  }

  // Feeds ids in chunks of the backend; returns the last row's logits.
  static std::vector<float> prefill(Backend& backend, std::span<const TokenId> ids) {
    std::vector<float> logits(static_cast<size_t>(backend.desc().vocab_rows));
    for (size_t first = 0; first < ids.size();) {
      const size_t n = std::min(ids.size() - first, static_cast<size_t>(backend.max_rows()));
      const bool last = first + n == ids.size();
      const std::vector<int64_t> rows =
          last ? std::vector<int64_t>{static_cast<int64_t>(n) - 1} : std::vector<int64_t>{};
      backend.forward(ids.subspan(first, n), rows,
                      last ? std::span<float>(logits) : std::span<float>(), nullptr);
      first += n;
    }
    return logits;
  }

  std::unique_ptr<Model> model_;
};

TEST_P(Fixture, GreedyIdsEqualReferences) {
  const auto refs = reference(".tasks.json");
  const auto cpu = backend();
  ASSERT_EQ(refs["cases"].size(), 30U);
  for (const auto& task : refs["cases"]) {
    cpu->reset();
    const auto prompt = task["prompt_ids"].get<std::vector<TokenId>>();
    const auto expected = task["greedy_ids"].get<std::vector<TokenId>>();
    std::vector<float> logits = prefill(*cpu, prompt);
    std::vector<TokenId> found;
    while (found.size() < expected.size()) {
      found.push_back(static_cast<TokenId>(test::argmax(logits)));
      if (found.size() < expected.size()) {
        logits = prefill(*cpu, std::span(&expected[found.size() - 1], 1));
      }
    }
    EXPECT_EQ(found, expected) << task["user"];
  }
}

TEST_P(Fixture, LogitsAreWithinExactBounds) {
  const auto path = test::ref_path(GetParam() + ".logits.f32");
  if (!path) {
    GTEST_SKIP() << "SKIPPED: " << GetParam() << ".logits.f32 is not here";
  }
  const auto refs = reference(".logits.json");
  const std::vector<float> expected = test::load_f32(*path);
  const size_t vocab = refs["vocab"].get<size_t>();
  size_t row = 0;
  for (const std::string part : {"short", "long"}) {
    const auto ids = refs[part + "_ids"].get<std::vector<TokenId>>();
    const auto positions = refs[part + "_positions"].get<std::vector<int64_t>>();
    const auto cpu = backend(static_cast<int64_t>(ids.size()), KernelSet::kFast, 16);
    std::vector<float> logits(positions.size() * vocab);
    cpu->forward(ids, positions, logits, nullptr);
    for (size_t i = 0; i < positions.size(); ++i, ++row) {
      EXPECT_TRUE(within_exact_bounds(std::span(logits).subspan(i * vocab, vocab),
                                      std::span(expected).subspan(row * vocab, vocab)))
          << part << " position " << positions[i];
    }
  }
  EXPECT_EQ(row * vocab, expected.size());
}

// Rows of one call do not depend on each other's number (cpu/op_args.h), so any chunking gives the
// same bits.
TEST_P(Fixture, ChunkSizesGiveTheSameBits) {
  const auto ids = reference(".logits.json")["long_ids"].get<std::vector<TokenId>>();
  const std::vector<float> whole = prefill(*backend(1024), ids);
  for (const int64_t chunk : {1, 64, 317, 512, 0}) {
    EXPECT_EQ(prefill(*backend(chunk), ids), whole) << "chunk " << chunk;
  }
  for (const size_t n : {1UL, 2UL, 63UL, 64UL, 65UL, 129UL}) {
    const auto prompt = std::span(ids).first(n);
    EXPECT_EQ(prefill(*backend(64), prompt), prefill(*backend(1), prompt)) << n << " tokens";
  }
}

TEST_P(Fixture, ReferenceKernelsAgreeWithinExactBounds) {
  const auto ids = reference(".logits.json")["short_ids"].get<std::vector<TokenId>>();
  EXPECT_TRUE(within_exact_bounds(prefill(*backend(), ids),
                                  prefill(*backend(0, KernelSet::kReference), ids)));
}

TEST_P(Fixture, UndoneStepLeavesNoTrace) {
  const auto ids = reference(".logits.json")["short_ids"].get<std::vector<TokenId>>();
  const auto cpu = backend();
  const std::vector<float> first = prefill(*cpu, ids);
  const std::vector<TokenId> other = {5, 6, 7};
  const std::vector<TokenId> next = {9};
  prefill(*cpu, other);
  cpu->undo_last();
  EXPECT_EQ(cpu->n_past(), static_cast<int64_t>(ids.size()));
  const std::vector<float> after_undo = prefill(*cpu, next);
  cpu->reset();
  EXPECT_EQ(prefill(*cpu, ids), first);
  EXPECT_EQ(prefill(*cpu, next), after_undo);
}

INSTANTIATE_TEST_SUITE_P(All, Fixture, ::testing::ValuesIn(test::fixture_names()),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr
