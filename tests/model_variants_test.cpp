// The models that tests make for themselves: each is what it claims to be.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/expect_error.h"
#include "support/model_variants.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

using test::GgufWriter;

GgufWriter fixture(const std::string& name) {
  return GgufWriter::copy_of(test::open_gguf(test::model_fixture(name)));
}

std::vector<float> random_values(size_t n_elems, float spread) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(n_elems);
  for (float& value : values) {
    value = normal(generator);
  }
  return values;
}

// Every f16 is itself, and what lies between two rounds to the nearest, ties to even.
TEST(QuantEncode, HalfPrecisionRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float value = test::from_f16(static_cast<uint16_t>(bits));
    const float next =
        bits + 1 == 0x7C00 ? 65536.0f : test::from_f16(static_cast<uint16_t>(bits + 1));
    ASSERT_EQ(test::to_f16(value), bits);
    ASSERT_EQ(test::to_f16(-value), bits | 0x8000);
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(test::to_f16(middle), bits + (bits & 1));
    ASSERT_EQ(test::to_f16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(test::to_f16(std::nextafter(middle, 1e9f)), bits + 1);
  }
}

// Plain floats: half an ulp. Ternary: within a scale, d/2 where |x| < 3d/2. Four bits: half of the
// widest step of E2M1 (2 scales, between 4 and 6), and what a scale rounded down clips.
TEST(QuantEncode, DecodesToNearWhatItEncoded) {
  const std::vector<float> values = random_values(256 * 64, 0.05f);
  const auto worst_error = [&](uint32_t type_id, size_t block_elems, auto bound) {
    const std::vector<float> decoded = test::decode(type_id, test::encode(type_id, values));
    ASSERT_EQ(decoded.size(), values.size());
    for (size_t idx = 0; idx < values.size(); ++idx) {
      float largest = 0.0f;
      for (size_t at = idx / block_elems * block_elems; at < (idx / block_elems + 1) * block_elems;
           ++at) {
        largest = std::max(largest, std::fabs(values[at]));
      }
      ASSERT_LE(std::fabs(values[idx] - decoded[idx]), bound(values[idx], largest))
          << type_id << " at " << idx;
    }
  };
  worst_error(test::kTypeF32, 1, [](float, float) { return 0.0f; });
  worst_error(test::kTypeF16, 1,
              [](float x, float) { return std::max(std::fabs(x) * 0x1p-11f, 0x1p-25f); });
  worst_error(test::kTypeBf16, 1, [](float x, float) { return std::fabs(x) * 0x1p-8f; });
  for (const uint32_t type_id : {test::kTypeTq1_0, test::kTypeTq2_0}) {
    worst_error(type_id, 256, [](float, float largest) { return largest; });
  }
  // The scale is above a quarter of half the largest: 6 scales reach 3/4 of it.
  worst_error(test::kTypeMxfp4, 32, [](float, float largest) { return largest / 4; });
  // Scale = largest / 6 within 1/16: half a step of 2 scales.
  worst_error(test::kTypeNvfp4, 16,
              [](float, float largest) { return largest / 6 * (1 + 1.0f / 16) * 1.0001f; });
}

// What a type can hold survives: values of the type encode to themselves.
TEST(QuantEncode, ValuesOfTheTypeAreKept) {
  const std::vector<float> values = random_values(256 * 16, 0.05f);
  for (const uint32_t type_id : {test::kTypeF32, test::kTypeF16, test::kTypeBf16, test::kTypeTq1_0,
                                 test::kTypeTq2_0, test::kTypeMxfp4}) {
    const std::vector<float> once = test::decode(type_id, test::encode(type_id, values));
    EXPECT_EQ(test::decode(type_id, test::encode(type_id, once)), once) << type_id;
    EXPECT_GT(std::count_if(once.begin(), once.end(), [](float value) { return value != 0.0f; }),
              1000)
        << type_id;
  }
}

TEST(QuantEncode, BothTernaryTypesHoldTheSameValues) {
  const std::vector<float> values = random_values(256 * 16, 3.0f);
  EXPECT_EQ(test::decode(test::kTypeTq1_0, test::encode(test::kTypeTq1_0, values)),
            test::decode(test::kTypeTq2_0, test::encode(test::kTypeTq2_0, values)));
}

TEST(ModelVariants, AnUntiedHeadIsTheEmbedding) {
  GgufWriter model = fixture("tiny-qwen2-legacy");
  test::untie_head(model);
  const std::vector<std::byte> image = model.bytes();
  const GgufFile file = test::open_gguf_image(image);
  const GgufTensor& head = *file.find_tensor("output.weight");
  const GgufTensor& embedding = *file.find_tensor("token_embd.weight");
  EXPECT_EQ(head.shape, embedding.shape);
  EXPECT_EQ(head.type_id, embedding.type_id);
  EXPECT_TRUE(
      std::equal(head.data.begin(), head.data.end(), embedding.data.begin(), embedding.data.end()));
}

TEST(ModelVariants, AnMtpBlockIsOneMoreBlock) {
  for (const char* name : {"tiny-qwen35-Q4_K_M", "tiny-qwen35moe-mix"}) {
    GgufWriter model = fixture(name);
    const size_t n_tensors = model.tensors().size();
    test::add_mtp_block(model);
    const std::vector<std::byte> image = model.bytes();
    const GgufFile file = test::open_gguf_image(image);
    const std::string arch(*file.get_string("general.architecture"));
    const uint64_t n_blocks = *file.get_u64(arch + ".block_count");
    EXPECT_EQ(file.get_u64(arch + ".nextn_predict_layers"), 1u);
    const auto pattern = file.get_i64_array(arch + ".attention.recurrent_layers");
    ASSERT_TRUE(pattern);
    EXPECT_EQ(pattern->size(), n_blocks);
    EXPECT_EQ(pattern->back(), 0);
    EXPECT_GE(file.tensors().size(), n_tensors + 4 + 11);
    for (const char* part : {"attn_q", "attn_output", "post_attention_norm", "nextn.enorm",
                             "nextn.hnorm", "nextn.shared_head_norm"}) {
      EXPECT_NE(file.find_tensor(fmt::format("blk.{}.{}.weight", n_blocks - 1, part)), nullptr)
          << part;
    }
    EXPECT_EQ(file.find_tensor(fmt::format("blk.{}.nextn.eh_proj.weight", n_blocks - 1))->shape,
              (std::vector<int64_t>{256, 512}));
    EXPECT_EQ(file.find_tensor(fmt::format("blk.{}.attn_norm.weight", n_blocks)), nullptr);
  }
}

TEST(ModelVariants, YarnKeysAreThere) {
  GgufWriter model = fixture("tiny-qwen3-kmix");
  test::set_yarn(model, 4.0f, 512);
  const std::vector<std::byte> image = model.bytes();
  const GgufFile file = test::open_gguf_image(image);
  EXPECT_EQ(file.get_string("qwen3.rope.scaling.type"), "yarn");
  EXPECT_EQ(file.get_f64("qwen3.rope.scaling.factor"), 4.0);
  EXPECT_EQ(file.get_u64("qwen3.rope.scaling.original_context_length"), 512u);
}

TEST(ModelVariants, PaddedRowsAreFourTimesOldOnes) {
  GgufWriter model = fixture("tiny-qwen3-kmix");
  test::untie_head(model);
  const std::vector<float> before = test::decode_tensor(model.tensor("token_embd.weight"));
  test::pad_vocabulary(model, 64);
  for (const char* name : {"token_embd.weight", "output.weight"}) {
    EXPECT_EQ(model.tensor(name).shape, (std::vector<int64_t>{4096 + 64, 256}));
    const std::vector<float> after = test::decode_tensor(model.tensor(name));
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
    for (size_t idx = 0; idx < 64 * 256; ++idx) {
      ASSERT_EQ(after[before.size() + idx], 4.0f * before[idx]) << name << " at " << idx;
    }
  }
  const std::vector<std::byte> image = model.bytes();
  EXPECT_EQ(test::open_gguf_image(image).get_string_array("tokenizer.ggml.tokens")->size(), 4096u);
}

TEST(ModelVariants, RetypedLayersHoldTheType) {
  for (const uint32_t type_id : {test::kTypeF16, test::kTypeBf16, test::kTypeTq1_0,
                                 test::kTypeTq2_0, test::kTypeMxfp4, test::kTypeNvfp4}) {
    for (const char* name : {"tiny-qwen2-legacy", "tiny-qwen35moe-mix"}) {
      GgufWriter model = fixture(name);
      test::retype_layer(model, 1, type_id);
      const std::vector<std::byte> image = model.bytes();
      const GgufFile file = test::open_gguf_image(image);
      int n_retyped = 0;
      for (const GgufTensor& tensor : file.tensors()) {
        n_retyped += tensor.type_id == type_id && tensor.name.starts_with("blk.1.") ? 1 : 0;
      }
      EXPECT_GE(n_retyped, 7) << name << " " << type_id;
      EXPECT_EQ(file.find_tensor("blk.1.attn_norm.weight")->type_id, test::kTypeF32);
    }
  }
}

// SwiGLU is linear in up, and down undoes it: both scalings are exact, so is the product.
TEST(ModelVariants, HotIsExactInEveryTypeOfTheMix) {
  const GgufWriter plain = fixture("tiny-qwen3-kmix");
  GgufWriter hot = plain;
  test::make_hot(hot);
  std::vector<uint32_t> types;
  for (const test::WriterTensor& tensor : plain.tensors()) {
    const bool is_up = tensor.name.ends_with(".ffn_up.weight");
    if (!is_up && !tensor.name.ends_with(".ffn_down.weight")) {
      EXPECT_EQ(hot.tensor(tensor.name).data, tensor.data);
      continue;
    }
    const std::vector<float> before = test::decode_tensor(tensor);
    const std::vector<float> after = test::decode_tensor(hot.tensor(tensor.name));
    for (size_t idx = 0; idx < before.size(); ++idx) {
      ASSERT_EQ(is_up ? after[idx] : before[idx], 8192.0f * (is_up ? before[idx] : after[idx]))
          << tensor.name << " at " << idx;
    }
    if (is_up) {
      EXPECT_EQ(hot.tensor(tensor.name).type_id, tensor.type_id);
      types.push_back(tensor.type_id);
    } else {
      EXPECT_EQ(hot.tensor(tensor.name).type_id, test::kTypeF32);
    }
  }
  std::sort(types.begin(), types.end());
  EXPECT_EQ(types,
            (std::vector<uint32_t>{10, 11, 12, 13, 14, 23}));  // Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS
  const std::vector<std::byte> image = hot.bytes();
  EXPECT_EQ(test::open_gguf_image(image).tensors().size(), plain.tensors().size());
}

TEST(ModelVariants, AScaleThatCannotHoldTheProductIsNoSilentInfinity) {
  std::vector<std::byte> block(34);
  block[1] = std::byte{0x78};  // Q8_0 with d = 32768
  EXPECT_THROW(test::scale_exactly(8, block, 4.0f), std::runtime_error);
}

TEST(ModelVariants, AddedExpertsRepeatAndAreRoutedByZeros) {
  for (const auto& [name, n_experts] :
       {std::pair("tiny-qwen3moe-mix", 256), {"tiny-qwen35moe-mix", 40}}) {
    GgufWriter model = fixture(name);
    const test::WriterTensor old_up = model.tensor("blk.1.ffn_up_exps.weight");
    test::add_experts(model, n_experts);
    const std::vector<std::byte> image = model.bytes();
    const GgufFile file = test::open_gguf_image(image);
    EXPECT_EQ(file.get_u64(std::string(*file.get_string("general.architecture")) + ".expert_count"),
              static_cast<uint64_t>(n_experts));
    const GgufTensor& up = *file.find_tensor("blk.1.ffn_up_exps.weight");
    EXPECT_EQ(up.shape.front(), n_experts);
    EXPECT_TRUE(std::equal(old_up.data.begin(), old_up.data.end(),
                           up.data.end() - static_cast<int64_t>(old_up.data.size())));
    const std::vector<float> router =
        test::decode_tensor(model.tensor("blk.1.ffn_gate_inp.weight"));
    EXPECT_EQ(router.size(), static_cast<size_t>(n_experts) * 256u);
    EXPECT_TRUE(std::all_of(router.begin() + 8 * 256, router.end(),
                            [](float value) { return value == 0.0f; }));
    EXPECT_NE(router[7 * 256], 0.0f);
  }
}

TEST(ModelVariants, OddHeadsAreSlices) {
  struct Case {
    const char* name;
    int64_t head_dim, q_rows;
  };
  for (const Case& test_case :
       {Case{"tiny-qwen2-legacy", 64, 192}, Case{"tiny-qwen3-kmix", 128, 384},
        Case{"tiny-qwen35-Q4_K_M", 256, 1536}}) {
    GgufWriter model = fixture(test_case.name);
    test::keep_heads(model, 3, 1);
    const std::vector<std::byte> image = model.bytes();
    const GgufFile file = test::open_gguf_image(image);
    const std::string arch(*file.get_string("general.architecture"));
    EXPECT_EQ(file.get_u64(arch + ".attention.head_count"), 3u);
    EXPECT_EQ(file.get_u64(arch + ".attention.head_count_kv"), 1u);
    EXPECT_EQ(file.get_u64(arch + ".attention.key_length"),
              static_cast<uint64_t>(test_case.head_dim));
    EXPECT_EQ(file.find_tensor("blk.3.attn_q.weight")->shape,
              (std::vector<int64_t>{test_case.q_rows, 256}));
    EXPECT_EQ(file.find_tensor("blk.3.attn_k.weight")->shape,
              (std::vector<int64_t>{test_case.head_dim, 256}));
    EXPECT_EQ(file.find_tensor("blk.3.attn_output.weight")->shape,
              (std::vector<int64_t>{256, 3 * test_case.head_dim}));
    const std::vector<float> whole =
        test::decode_tensor(fixture(test_case.name).tensor("blk.3.attn_output.weight"));
    const std::vector<float> kept = test::decode_tensor(model.tensor("blk.3.attn_output.weight"));
    const size_t row_elems = static_cast<size_t>(3 * test_case.head_dim);
    EXPECT_EQ(kept[5 * row_elems + 7], whole[5 * static_cast<size_t>(4 * test_case.head_dim) + 7]);
  }
}

TEST(ModelVariants, CombineAndSplit) {
  GgufWriter model = fixture("tiny-qwen35-Q4_K_M");
  test::untie_head(model);
  test::add_mtp_block(model);
  test::pad_vocabulary(model, 32);
  const test::TempFolder folder;
  const auto paths = model.write_split(folder.path(), "model", 3);
  EXPECT_EQ(GgufWriter::copy_of(test::open_gguf(paths[1])).bytes(), model.bytes());
}

}  // namespace
}  // namespace apr
