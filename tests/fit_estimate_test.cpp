// What the fit counts: tensors, bytes, elements, cache positions; and the seed's sum and decision.
#include <gtest/gtest.h>

#include <limits>

#include "support/fit_checks.h"
#include "support/fixtures.h"
#include "support/model_variants.h"
#include "support/real_shapes.h"

namespace apr {
namespace {

using test::kQwen3Large;
using test::kQwen3Small;

Model sparse_model(const test::DenseShape& shape, const test::TempFolder& folder) {
  test::dense_writer(shape).write_sparse(folder / "model.gguf");
  return Model(test::open_gguf(folder / "model.gguf"));
}

TEST(ResidentEstimate, OfTheSeedsModelHasItsMatricesAndItsCache) {
  const test::TempFolder folder;
  const ResidentEstimate found = resident_estimate(sparse_model(kQwen3Small, folder), 2);
  EXPECT_EQ(found.n_matrices, 197);
  const double cache_mib = static_cast<double>(prefill_need(found, 2, 0).cache_bytes) / (1 << 20);
  EXPECT_NEAR(cache_mib, 3281.5, 3281.5 * 0.02);
  EXPECT_EQ(found.kv_bytes_per_position, 2U * 8 * 128 * 2 * 28);
}

TEST(ResidentEstimate, OfTheLargerModelHasItsCache) {
  const test::TempFolder folder;
  const ResidentEstimate found = resident_estimate(sparse_model(kQwen3Large, folder), 2);
  EXPECT_EQ(found.n_matrices, 7 * 36 + 1);
  EXPECT_NEAR(static_cast<double>(prefill_need(found, 2, 0).cache_bytes) / 1e9, 15.1, 0.1);
}

TEST(ResidentEstimate, CountsTheBytesOfEveryFixtureExactly) {
  int n_walked = 0;
  for (const std::string& name : test::fixture_names()) {
    if (const auto path = test::model_path(name)) {
      EXPECT_EQ(test::walk_difference(Model(test::open_gguf(*path))), "");
      ++n_walked;
    }
  }
  EXPECT_GE(n_walked, 7);
}

TEST(ResidentEstimate, FollowsATensorThatChangesItsType) {
  test::GgufWriter writer =
      test::GgufWriter::copy_of(test::open_gguf(test::model_fixture("tiny-qwen3-kmix")));
  const std::vector<std::byte> before = writer.bytes();
  test::retype_tensor(writer.tensor("blk.2.ffn_up.weight"), test::kTypeMxfp4);
  const std::vector<std::byte> after = writer.bytes();
  const Model old_model(test::open_gguf_image(before)), new_model(test::open_gguf_image(after));
  EXPECT_EQ(test::walk_difference(new_model), "");
  const ResidentEstimate old_found = resident_estimate(old_model, 2);
  const ResidentEstimate found = resident_estimate(new_model, 2);
  EXPECT_NE(found.weights_bytes, old_found.weights_bytes);
  EXPECT_EQ(found.n_elems, old_found.n_elems);
}

TEST(ResidentEstimate, CountsTheHeadOnceTiedOrNot) {
  test::GgufWriter writer =
      test::GgufWriter::copy_of(test::open_gguf(test::model_fixture("tiny-qwen3-kmix")));
  const std::vector<std::byte> tied = writer.bytes();
  test::untie_head(writer);
  const std::vector<std::byte> untied = writer.bytes();
  const ResidentEstimate first = resident_estimate(Model(test::open_gguf_image(tied)), 2);
  const ResidentEstimate second = resident_estimate(Model(test::open_gguf_image(untied)), 2);
  EXPECT_EQ(first.n_matrices, 7 * 6 + 1);
  EXPECT_EQ(second.n_matrices, first.n_matrices);
  EXPECT_EQ(second.weights_bytes, first.weights_bytes);
  EXPECT_EQ(second.n_elems, first.n_elems);
}

TEST(ResidentEstimate, CountsEveryExpert) {
  test::GgufWriter writer =
      test::GgufWriter::copy_of(test::open_gguf(test::model_fixture("tiny-qwen3moe-mix")));
  const std::vector<std::byte> few = writer.bytes();
  const Model few_model(test::open_gguf_image(few));
  test::add_experts(writer, 4 * few_model.desc().moe.n_experts);
  const std::vector<std::byte> many = writer.bytes();
  const Model many_model(test::open_gguf_image(many));
  EXPECT_EQ(test::walk_difference(many_model), "");
  EXPECT_GT(resident_estimate(many_model, 2).n_elems, 2 * resident_estimate(few_model, 2).n_elems);
}

TEST(ResidentEstimate, CountsTheCacheOfAttentionLayersAlone) {
  const Model model(test::open_gguf(test::model_fixture("tiny-qwen35-Q4_K_M")));
  uint64_t n_attention = 0;
  for (const LayerDesc& layer : model.desc().layers) {
    n_attention += layer.mixer == Mixer::kAttention ? 1 : 0;
  }
  ASSERT_LT(n_attention, model.desc().layers.size());
  const auto kv_dim = static_cast<uint64_t>(model.desc().attention.kv_dim());
  EXPECT_EQ(resident_estimate(model, 2).kv_bytes_per_position, n_attention * 2 * kv_dim * 2);
  EXPECT_EQ(resident_estimate(model, 4).kv_bytes_per_position, n_attention * 2 * kv_dim * 4);
}

TEST(PrefillNeed, IsTheSumOfTheSeed) {
  EXPECT_EQ(kPrefillReserveBytes, 4'573'741'824U);
  EXPECT_EQ(test::need_difference(), "");
}

TEST(PrefillNeed, Saturates) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(prefill_need({1, 1, kMost / 2 + 1, 1}, 2, 1).total_bytes(), kMost);
  EXPECT_EQ(prefill_need({1, 1, 1, kMost}, 2, 2).total_bytes(), kMost);
  EXPECT_EQ(prefill_need({1, kMost, kMost, kMost}, 1, 1).total_bytes(), kMost);
}

// The seed's cases with this program's 16-bit cache: a card of 24 GiB has 23,300 MiB free.
TEST(PrefillNeed, PutsTheSeedsModelsOnTheRightSideOfItsCard) {
  const test::TempFolder folder;
  const uint64_t free_bytes = uint64_t{23300} << 20;
  const ResidentEstimate large = resident_estimate(sparse_model(kQwen3Large, folder), 2);
  EXPECT_GT(prefill_need(large, 2, 2048).total_bytes(), free_bytes);
  const test::TempFolder other;
  const ResidentEstimate small = resident_estimate(sparse_model(kQwen3Small, other), 2);
  EXPECT_LE(prefill_need(small, 2, 20'001).total_bytes(), free_bytes);
}

}  // namespace
}  // namespace apr
