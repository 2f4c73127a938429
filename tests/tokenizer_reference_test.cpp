// Token ids are equal to those of Hugging Face tokenizers: exact, on every stored text.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/tokenizer_files.h"

namespace apr {
namespace {

using test::Ids;

std::string streamed(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

// The ids of an answer without the stop token that ends it, if one does.
Ids answer_ids(const Tokenizer& tokenizer, const nlohmann::json& ids) {
  Ids answer = ids.get<Ids>();
  const std::vector<TokenId>& stops = tokenizer.stop_ids();
  if (!answer.empty() && std::find(stops.begin(), stops.end(), answer.back()) != stops.end()) {
    answer.pop_back();
  }
  return answer;
}

void expect_texts(const Tokenizer& tokenizer, const std::string& refs_name, size_t n_at_least) {
  const auto refs = test::read_json(APR_TEST_DATA "/refs/" + refs_name);
  for (const auto& ref : refs["cases"]) {
    const auto text = ref["text"].get<std::string>();
    const auto ids = ref["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.encode(text, true), ids) << text;
    EXPECT_EQ(streamed(tokenizer, ids), tokenizer.decode(ids)) << text;  // these texts are UTF-8
  }
  EXPECT_GE(refs["cases"].size(), n_at_least);
}

void expect_tasks(const Tokenizer& tokenizer, const std::string& refs_path) {
  const auto refs = test::read_json(refs_path);
  for (const auto& ref : refs["cases"]) {
    EXPECT_EQ(tokenizer.encode(ref["prompt"].get<std::string>(), true),
              ref["prompt_ids"].get<Ids>());
    EXPECT_EQ(streamed(tokenizer, answer_ids(tokenizer, ref["greedy_ids"])),
              ref["greedy_text"].get<std::string>());
  }
  EXPECT_GE(refs["cases"].size(), 8u);
}

// The references name tiny-*-Q8_0, whose vocabulary every file of the architecture shares.
TEST(Tokenizer, EncodesQwen2TextsAsReference) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen3-kmix");
  EXPECT_EQ(tokenizer.pre_tokenizer_name(), "qwen2");
  expect_texts(tokenizer, "tokenizer-tiny-qwen3.json", 170);
}

TEST(Tokenizer, EncodesQwen35TextsAsReference) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen35-Q4_K_M");
  EXPECT_EQ(tokenizer.pre_tokenizer_name(), "qwen35");
  expect_texts(tokenizer, "tokenizer-tiny-qwen35.json", 220);
}

TEST(Tokenizer, CommittedFilesShareTheVocabularyTheReferencesName) {
  const std::string folder = APR_SHARED "/fixtures/";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "SKIPPED: no wider fixtures at " << folder;
  }
  for (const auto& [named, committed] : {std::pair{"tiny-qwen3-Q8_0", "tiny-qwen3-kmix"},
                                         {"tiny-qwen35-Q8_0", "tiny-qwen35-Q4_K_M"}}) {
    const GgufFile a = test::open_model(folder + named + ".gguf");
    const GgufFile b = test::open_committed(committed);
    for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
      EXPECT_EQ(a.get_string_array(key), b.get_string_array(key)) << named << " " << key;
    }
    const char* types = "tokenizer.ggml.token_type";
    EXPECT_EQ(a.get_i64_array(types), b.get_i64_array(types)) << named;
    EXPECT_EQ(a.get_string("tokenizer.ggml.pre"), b.get_string("tokenizer.ggml.pre")) << named;
  }
}

class CommittedModel : public testing::TestWithParam<const char*> {};

TEST_P(CommittedModel, EncodesPromptsAndDecodesAnswers) {
  expect_tasks(test::committed_tokenizer(GetParam()),
               APR_TEST_DATA "/refs/" + std::string(GetParam()) + ".tasks.json");
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, CommittedModel,
                         testing::Values("tiny-qwen2-legacy", "tiny-qwen3-iqmix", "tiny-qwen3-kmix",
                                         "tiny-qwen3moe-mix", "tiny-qwen35-Q4_K_M",
                                         "tiny-qwen35-UD-IQ2_XXS", "tiny-qwen35moe-mix"));

TEST(Tokenizer, DecodesRepliesOfChats) {
  for (const char* name : {"tiny-qwen2-legacy", "tiny-qwen3-kmix", "tiny-qwen35-Q4_K_M",
                           "tiny-qwen35-UD-IQ2_XXS", "tiny-qwen35moe-mix", "tiny-qwen3moe-mix"}) {
    const Tokenizer tokenizer = test::committed_tokenizer(name);
    const auto refs = test::read_json(APR_TEST_DATA "/refs/" + std::string(name) + ".chats.json");
    for (const auto& chat : refs["chats"]) {
      for (const auto& turn : chat) {
        EXPECT_EQ(streamed(tokenizer, answer_ids(tokenizer, turn["greedy_ids"])),
                  turn["greedy_text"].get<std::string>());
      }
    }
    EXPECT_FALSE(refs["chats"].empty());
  }
}

TEST(Tokenizer, EncodesAsReferenceWithTheRealVocabulary) {
  if (std::getenv("APR_REAL_MODEL") == nullptr) {
    GTEST_SKIP() << "SKIPPED: set APR_REAL_MODEL=1 (and APR_REAL_MODEL_PATH) to test with the real "
                    "Qwen2.5-Coder file, which tools/fetch_qwen_coder.sh gets";
  }
  const char* given = std::getenv("APR_REAL_MODEL_PATH");
  const std::string path = given != nullptr ? given
                                            : APR_SOURCE_DIR
                               "/build/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
  const GgufFile file = test::open_model(path);
  const Tokenizer tokenizer(file);
  EXPECT_EQ(tokenizer.vocab_size(), 151936);
  EXPECT_EQ(tokenizer.stop_ids(), (Ids{151645, 151643}));
  EXPECT_EQ(tokenizer.token_bytes(151665), "");  // [PAD151665], unused
  EXPECT_FALSE(tokenizer.add_bos());
  expect_texts(tokenizer, "tokenizer-qwen2.5.json", 250);
  expect_tasks(tokenizer, APR_TEST_DATA "/refs/qwen2.5-coder-0.5b.json");
}

}  // namespace
}  // namespace apr
