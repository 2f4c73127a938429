// Models the fixtures lack, made from them: each against what it must equal.
#include <gtest/gtest.h>

#include "apr/backend.h"
#include "apr/generate.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/gguf_writer.h"
#include "support/model_variants.h"

namespace apr {
namespace {

using test::GgufWriter;

GgufWriter copy_of(const std::string& fixture) {
  return GgufWriter::copy_of(test::open_gguf(*test::model_path(fixture)));
}

std::vector<TokenId> ids_of(const std::string& fixture) {
  return test::load_json(*test::ref_path(fixture + ".logits.json"))["short_ids"]
      .get<std::vector<TokenId>>();
}

std::vector<float> logits_of(const Model& model, std::span<const TokenId> ids,
                             KernelSet kernels = KernelSet::kFast, int64_t chunk = 64) {
  const auto backend = make_cpu_backend(
      model, {.n_threads = 2, .context = 64, .prefill_chunk = chunk, .kernels = kernels});
  std::vector<float> logits(static_cast<size_t>(model.desc().vocab_rows));
  for (size_t first = 0; first < ids.size();) {
    const size_t n = std::min(ids.size() - first, static_cast<size_t>(backend->max_rows()));
    const std::vector<int64_t> last = {static_cast<int64_t>(n) - 1};
    EXPECT_TRUE(backend->forward(ids.subspan(first, n), last, logits, nullptr));
    first += n;
  }
  return logits;
}

std::vector<float> logits_of(const GgufWriter& file, std::span<const TokenId> ids,
                             KernelSet kernels = KernelSet::kFast, int64_t chunk = 64) {
  const std::vector<std::byte> image = file.bytes();
  return logits_of(Model(test::open_gguf_image(image)), ids, kernels, chunk);
}

// Fast kernels against the oracle, and chunking, where there is no outside reference.
void expect_consistent(const GgufWriter& file, std::span<const TokenId> ids) {
  const std::vector<float> fast = logits_of(file, ids);
  EXPECT_TRUE(test::within_exact_bounds(fast, logits_of(file, ids, KernelSet::kReference)));
  EXPECT_EQ(logits_of(file, ids, KernelSet::kFast, 1), fast);
  EXPECT_EQ(logits_of(file, ids, KernelSet::kFast, 7), fast);
}

TEST(VariantAnswers, UntiedHeadEqualsTied) {
  for (const std::string fixture : {"tiny-qwen2-legacy", "tiny-qwen35-Q4_K_M"}) {
    GgufWriter file = copy_of(fixture);
    const auto expected = logits_of(file, ids_of(fixture));
    test::untie_head(file);
    EXPECT_EQ(logits_of(file, ids_of(fixture)), expected) << fixture;
  }
}

TEST(VariantAnswers, SplitFileEqualsWhole) {
  const GgufWriter file = copy_of("tiny-qwen3moe-mix");
  const auto ids = ids_of("tiny-qwen3moe-mix");
  const test::TempFolder folder;
  for (const auto& part : file.write_split(folder.path(), "model", 3)) {
    EXPECT_EQ(logits_of(Model(test::open_gguf(part)), ids), logits_of(file, ids)) << part;
  }
}

TEST(VariantAnswers, MtpBlockIsLeftOut) {
  for (const std::string fixture : {"tiny-qwen35-Q4_K_M", "tiny-qwen35moe-mix"}) {
    GgufWriter file = copy_of(fixture);
    const auto expected = logits_of(file, ids_of(fixture));
    test::add_mtp_block(file);
    EXPECT_EQ(logits_of(file, ids_of(fixture)), expected) << fixture;
    const auto image = file.bytes();
    EXPECT_EQ(Model(test::open_gguf_image(image)).desc().n_mtp_layers, 1);
  }
}

TEST(VariantAnswers, PaddedRowsAreNeverSampled) {
  GgufWriter file = copy_of("tiny-qwen3-kmix");
  const auto ids = ids_of("tiny-qwen3-kmix");
  const auto expected = logits_of(file, ids);
  test::pad_vocabulary(file, 37);
  const auto padded = logits_of(file, ids);
  ASSERT_EQ(padded.size(), expected.size() + 37);
  EXPECT_EQ(std::vector(padded.begin(), padded.end() - 37), expected);
  Sampler sampler({}, static_cast<int64_t>(expected.size()));
  EXPECT_EQ(sampler.sample(padded, ids, 0), static_cast<TokenId>(test::argmax(expected)));
}

TEST(VariantAnswers, HotModelAnswersAsItsSource) {
  GgufWriter file = copy_of("tiny-qwen3-kmix");
  const auto ids = ids_of("tiny-qwen3-kmix");
  const auto expected = logits_of(file, ids);
  test::make_hot(file);
  EXPECT_TRUE(test::within_exact_bounds(logits_of(file, ids), expected));
}

TEST(VariantAnswers, LayersInTheTypesFixturesLack) {
  for (const uint32_t type_id :
       {1U, 30U, 34U, 35U, 39U, 40U}) {  // F16 BF16 TQ1_0 TQ2_0 MXFP4 NVFP4
    for (const std::string fixture : {"tiny-qwen3-kmix", "tiny-qwen35-Q4_K_M"}) {
      GgufWriter file = copy_of(fixture);
      test::retype_layer(file, 1, type_id);
      SCOPED_TRACE(fixture + " " + std::string(find_quant_type(type_id)->name));
      expect_consistent(file, ids_of(fixture));
    }
  }
}

TEST(VariantAnswers, YarnModelIsConsistentAndDiffers) {
  GgufWriter file = copy_of("tiny-qwen3-kmix");
  const auto ids = ids_of("tiny-qwen3-kmix");
  const auto plain = logits_of(file, ids);
  test::set_yarn(file, 4.0F, 2048);
  expect_consistent(file, ids);
  EXPECT_NE(logits_of(file, ids), plain);
}

TEST(VariantAnswers, ManyExpertsOfWhichMostGetNoToken) {
  for (const std::string fixture : {"tiny-qwen3moe-mix", "tiny-qwen35moe-mix"}) {
    GgufWriter file = copy_of(fixture);
    test::add_experts(file, 256);
    expect_consistent(file, ids_of(fixture));
  }
}

TEST(VariantAnswers, OddHeadCounts) {
  GgufWriter file = copy_of("tiny-qwen3-kmix");
  test::keep_heads(file, 3, 1);
  expect_consistent(file, ids_of("tiny-qwen3-kmix"));
  GgufWriter hybrid = copy_of("tiny-qwen35-Q4_K_M");
  test::keep_heads(hybrid, 3, 1);
  expect_consistent(hybrid, ids_of("tiny-qwen35-Q4_K_M"));
}

}  // namespace
}  // namespace apr
