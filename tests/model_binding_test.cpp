// Dimensions and tensors of a model file: what is wrong is named.
#include <gtest/gtest.h>

#include <cmath>

#include "apr/model.h"
#include "model/desc.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"
#include "support/model_variants.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

using test::expect_error;
using test::GgufWriter;

GgufWriter copy_of(const std::string& fixture) {
  return GgufWriter::copy_of(test::open_gguf(test::model_fixture(fixture)));
}

void expect_refused(const GgufWriter& file, ErrorCode code, const std::string& fragment) {
  const std::vector<std::byte> image = file.bytes();
  expect_error(code, fragment, [&] { Model(test::open_gguf_image(image)); });
}

ModelDesc desc_of(const GgufWriter& file) {
  const std::vector<std::byte> image = file.bytes();
  return Model(test::open_gguf_image(image)).desc();
}

TEST(Model, ReadsTheDimensionsOfEachArchitecture) {
  const ModelDesc dense = desc_of(copy_of("tiny-qwen2-legacy"));
  EXPECT_EQ(dense.n_layers, 6);
  EXPECT_EQ(dense.attention.head_dim, 64);
  EXPECT_TRUE(dense.attention.qkv_bias);
  EXPECT_TRUE(dense.tied_head);
  const ModelDesc moe = desc_of(copy_of("tiny-qwen3moe-mix"));
  EXPECT_EQ(moe.moe.n_experts, 8);
  EXPECT_EQ(moe.moe.n_used, 2);
  EXPECT_EQ(moe.moe.shared_ffn_dim, 0);
  const ModelDesc hybrid = desc_of(copy_of("tiny-qwen35moe-mix"));
  EXPECT_EQ(hybrid.layers[2].mixer, Mixer::kDeltaNet);
  EXPECT_EQ(hybrid.layers[3].mixer, Mixer::kAttention);
  EXPECT_EQ(hybrid.delta_net.conv_dim(), 1024);
  EXPECT_EQ(hybrid.rope.n_rot, 64);
  EXPECT_EQ(hybrid.moe.shared_ffn_dim, 256);
}

TEST(Model, NamesMissingMisshapenAndUnknownTensors) {
  GgufWriter missing = copy_of("tiny-qwen3-kmix");
  missing.remove_tensor("blk.1.ffn_norm.weight");
  expect_refused(missing, ErrorCode::kModelLoad, "tensor blk.1.ffn_norm.weight [256] is missing");

  GgufWriter no_embedding = copy_of("tiny-qwen3-kmix");
  no_embedding.remove_tensor("token_embd.weight");
  expect_refused(no_embedding, ErrorCode::kModelLoad, "tensor token_embd.weight is missing");

  GgufWriter misshapen = copy_of("tiny-qwen3-kmix");
  std::swap(misshapen.tensor("blk.0.attn_q.weight"), misshapen.tensor("blk.0.attn_k.weight"));
  misshapen.tensor("blk.0.attn_q.weight").name = "swap";
  misshapen.tensor("blk.0.attn_k.weight").name = "blk.0.attn_q.weight";
  misshapen.tensor("swap").name = "blk.0.attn_k.weight";
  expect_refused(misshapen, ErrorCode::kModelLoad, "has shape [");

  GgufWriter unknown = copy_of("tiny-qwen3-kmix");
  unknown.rename_tensor("blk.0.attn_q.weight", "blk.0.attn_qq.weight");
  expect_refused(unknown, ErrorCode::kModelLoad, "tensor blk.0.attn_q.weight");
  GgufWriter extra = copy_of("tiny-qwen3-kmix");
  auto surplus = extra.tensor("output_norm.weight");
  surplus.name = "blk.6.attn_norm.weight";
  extra.add_tensor(surplus);
  expect_refused(extra, ErrorCode::kModelLoad, "tensor blk.6.attn_norm.weight [256] is unknown");
}

TEST(Model, NamesAnUnsupportedArchitectureWithTheList) {
  GgufWriter other = copy_of("tiny-qwen3-kmix");
  other.set_string("general.architecture", "llama");
  expect_refused(other, ErrorCode::kModelLoad,
                 "architecture 'llama' is not supported; this version runs qwen2, qwen3, qwen3moe, "
                 "qwen35, qwen35moe");
  other.remove("general.architecture");
  expect_refused(other, ErrorCode::kInvalidFormat, "general.architecture is missing");
}

TEST(Model, RefusesKeysOutOfRange) {
  const auto with_u32 = [](const std::string& key, uint32_t value) {
    GgufWriter file = copy_of("tiny-qwen3-kmix");
    file.set<uint32_t>("qwen3." + key, value);
    return file;
  };
  expect_refused(with_u32("attention.head_count", 0), ErrorCode::kInvalidFormat,
                 "qwen3.attention.head_count is 0");
  expect_refused(with_u32("attention.head_count_kv", 3), ErrorCode::kInvalidFormat,
                 "3 does not divide the 4 heads");
  expect_refused(with_u32("block_count", 0), ErrorCode::kInvalidFormat, "block_count is 0");
  expect_refused(with_u32("block_count", UINT32_MAX), ErrorCode::kInvalidFormat, "block_count");
  expect_refused(with_u32("context_length", 0), ErrorCode::kInvalidFormat, "context_length is 0");
  expect_refused(with_u32("rope.dimension_count", 129), ErrorCode::kInvalidFormat,
                 "rope.dimension_count");
  GgufWriter nan = copy_of("tiny-qwen3-kmix");
  nan.set<float>("qwen3.rope.freq_base", NAN);
  expect_refused(nan, ErrorCode::kInvalidFormat, "rope.freq_base is nan");
  GgufWriter longrope = copy_of("tiny-qwen3-kmix");
  longrope.set_string("qwen3.rope.scaling.type", "longrope");
  expect_refused(longrope, ErrorCode::kModelLoad, "rope scaling 'longrope' is not supported");
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  GgufWriter file = copy_of("tiny-qwen3-kmix");
  const ModelDesc plain = desc_of(file);
  file.set_string("qwen3.rope.scaling.type", "linear");
  file.set<float>("qwen3.rope.scaling.factor", 4.0F);
  const ModelDesc scaled = desc_of(file);
  ASSERT_EQ(plain.rope.inv_freq.size(), 64U);
  for (size_t pair = 0; pair < 64; ++pair) {
    const double expected = std::pow(1e6, -static_cast<double>(pair) / 64.0);
    EXPECT_EQ(plain.rope.inv_freq[pair], static_cast<float>(expected));
    EXPECT_EQ(scaled.rope.inv_freq[pair], static_cast<float>(expected / 4.0));
  }
  EXPECT_EQ(scaled.rope.magnitude, 1.0F);
}

// Qwen's published setting (factor 4 over 32768, base 1e6, head 128), computed here as Hugging
// Face transformers' _compute_yarn_parameters does: a mask over pairs between the two corrected
// dimensions.
TEST(Rope, YarnMatchesThePublishedFormula) {
  RopeDesc rope;
  rope.n_rot = 128;
  rope.freq_base = 1e6;
  rope.scaling = RopeDesc::Scaling::kYarn;
  rope.factor = 4.0;
  rope.original_context_length = 32768;
  compute_rope_frequencies(rope);
  const auto correction_dim = [](double n_rotations) {
    return 128.0 * std::log(32768.0 / (n_rotations * 2.0 * M_PI)) / (2.0 * std::log(1e6));
  };
  const double low = std::floor(correction_dim(32.0)), high = std::ceil(correction_dim(1.0));
  ASSERT_LT(0.0, low);
  ASSERT_LT(high, 63.0);
  for (int pair = 0; pair < 64; ++pair) {
    const double position_freq = std::pow(1e6, 2.0 * pair / 128.0);
    const double extrapolation_share =
        1.0 - std::min(1.0, std::max(0.0, (pair - low) / (high - low)));
    const double expected = (1.0 / (4.0 * position_freq)) * (1.0 - extrapolation_share) +
                            (1.0 / position_freq) * extrapolation_share;
    EXPECT_NEAR(rope.inv_freq[static_cast<size_t>(pair)], expected, expected * 1e-6) << pair;
  }
  EXPECT_NEAR(rope.magnitude, 0.1 * std::log(4.0) + 1.0, 1e-6);
}

}  // namespace
}  // namespace apr
