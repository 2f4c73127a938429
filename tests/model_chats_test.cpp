// Conversations through tokenizer, chat template and model: every turn's greedy ids, the history
// re-rendered with the right answers.
#include <gtest/gtest.h>

#include "apr/backend.h"
#include "apr/chat_template.h"
#include "apr/tokenizer.h"
#include "support/compare.h"
#include "support/fixtures.h"

namespace apr {
namespace {

class Chats : public ::testing::TestWithParam<std::string> {};

TEST_P(Chats, EveryTurnEqualsItsReference) {
  const auto path = test::model_path(GetParam());
  ASSERT_TRUE(path);
  const Model model(test::open_gguf(*path));
  const Tokenizer tokenizer(model.file());
  const ChatTemplate chat(*model.file().get_string("tokenizer.chat_template"));
  const auto conversations = test::load_json(*test::ref_path("chats.json"));
  const auto refs = test::load_json(*test::ref_path(GetParam() + ".chats.json"));
  const auto cpu = make_cpu_backend(model, {.n_threads = 2, .context = 1024});
  std::vector<float> logits(static_cast<size_t>(model.desc().vocab_rows));

  int n_turns = 0;
  ASSERT_EQ(refs["chats"].size(), conversations.size());
  for (size_t chat_idx = 0; chat_idx < conversations.size(); ++chat_idx) {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    for (size_t turn = 0; turn < conversations[chat_idx].size(); ++turn, ++n_turns) {
      const auto& said = conversations[chat_idx][turn];
      const auto& expected = refs["chats"][chat_idx][turn];
      messages.push_back({{"role", "user"}, {"content", said["user"]}});
      nlohmann::ordered_json input = {{"messages", messages}, {"add_generation_prompt", true}};
      if (refs["thinking"] != "none") {
        input["enable_thinking"] = refs["thinking"] == "on";
      }
      const auto prompt = tokenizer.encode(chat.render(input));
      ASSERT_EQ(prompt.size(), expected["prompt_tokens"].get<size_t>());
      cpu->reset();
      std::vector<TokenId> found;
      std::vector<TokenId> next = prompt;
      const auto greedy = expected["greedy_ids"].get<std::vector<TokenId>>();
      while (found.size() < greedy.size()) {
        const std::vector<int64_t> last = {static_cast<int64_t>(next.size()) - 1};
        ASSERT_TRUE(cpu->forward(next, last, logits, nullptr));
        found.push_back(static_cast<TokenId>(test::argmax(logits)));
        next = {found.back()};
      }
      EXPECT_EQ(found, greedy) << "chat " << chat_idx << ", turn " << turn;
      EXPECT_EQ(tokenizer.decode(found),
                expected["greedy_text"].get<std::string>() +
                    (greedy.back() == tokenizer.eos_id() ? "<|im_end|>" : ""));
      messages.push_back({{"role", "assistant"}, {"content", said["right"]}});
    }
  }
  EXPECT_EQ(n_turns, 60);
}

INSTANTIATE_TEST_SUITE_P(All, Chats,
                         ::testing::Values("tiny-qwen2-legacy", "tiny-qwen3-kmix",
                                           "tiny-qwen3moe-mix", "tiny-qwen35-Q4_K_M",
                                           "tiny-qwen35-UD-IQ2_XXS", "tiny-qwen35moe-mix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr
