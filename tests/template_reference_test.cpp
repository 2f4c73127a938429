// Renderings equal those of Jinja2 as transformers sets it up (token-level: the very same text).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "apr/error.h"
#include "support/open_gguf.h"
#include "support/render.h"

namespace apr {
namespace {

using Json = nlohmann::ordered_json;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The text of a rendering, or "error: " and its message.
std::string outcome(const std::string& source, const Json& input) {
  try {
    return test::render_text(source, input);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFormat);
    return std::string("error: ") + error.what();
  }
}

TEST(ChatTemplate, EqualsRenderingsOfPublishedTemplates) {
  const std::filesystem::path dir = std::filesystem::path(APR_SHARED) / "reference/templates";
  if (!std::filesystem::exists(dir)) {
    GTEST_SKIP() << "SKIPPED: no " << dir << ", published templates are not compared";
  }
  int n_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = read_text(entry.path());
    auto expected_path = entry.path();
    expected_path.replace_extension(".expected.json");
    for (const Json& row : Json::parse(read_text(expected_path))) {
      SCOPED_TRACE(entry.path().filename().string() + " " + row["name"].get<std::string>());
      const std::string expected = row.contains("error")
                                       ? "error: " + row["error"].get<std::string>()
                                       : row["text"].get<std::string>();
      EXPECT_EQ(outcome(source, row["input"]), expected);
      ++n_cases;
    }
  }
  EXPECT_GE(n_cases, 135);
}

TEST(ChatTemplate, EqualsJinjaOnEachConstruct) {
  const Json file = Json::parse(read_text(APR_TEST_DATA "/jinja_cases.json"));
  int n_cases = 0;
  for (const Json& row : file["cases"]) {
    SCOPED_TRACE(row["name"].get<std::string>() + ": " + row["template"].get<std::string>());
    const std::string result = outcome(row["template"].get<std::string>(), file["input"]);
    ++n_cases;
    if (row.contains("text")) {
      EXPECT_EQ(result, row["text"].get<std::string>());
      continue;
    }
    EXPECT_EQ(result.rfind("error: ", 0), 0u) << result;
    if (!row.contains("message")) continue;
    const std::string message = row["message"].get<std::string>();
    if (row["error"] == "raised") {
      EXPECT_EQ(result, "error: " + message);
    } else {
      EXPECT_TRUE(result.ends_with(": " + message)) << result << "\nexpected: " << message;
    }
  }
  EXPECT_GE(n_cases, 190);
}

TEST(ChatTemplate, RendersTheTemplatesOfTheFixtures) {
  const Json input = Json::parse(R"({"add_generation_prompt": true, "messages": [
    {"role": "user", "content": "q1"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\na1"},
    {"role": "user", "content": "q2"}]})");
  const std::string plain_turns =
      "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"
      "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n";
  const std::string thinking_turns =
      "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</"
      "think>\n\na1<|im_end|>\n"
      "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n";
  struct Row {
    const char* name;
    std::string expected;
    bool knows_thinking;
  };
  for (const Row& row :
       {Row{"tiny-qwen2-legacy", thinking_turns, false}, Row{"tiny-qwen3-kmix", plain_turns, true},
        Row{"tiny-qwen3moe-mix", plain_turns, true},
        Row{"tiny-qwen35-Q4_K_M", plain_turns + "<think>\n", true},
        Row{"tiny-qwen35moe-mix", plain_turns + "<think>\n", true}}) {
    SCOPED_TRACE(row.name);
    const GgufFile file = test::open_gguf(test::model_fixture(row.name));
    const auto source = file.get_string("tokenizer.chat_template");
    ASSERT_TRUE(source.has_value());
    const ChatTemplate chat_template(*source);
    EXPECT_EQ(joined_text(chat_template.render(input)), row.expected);
    EXPECT_TRUE(chat_template.uses_variable("messages"));
    EXPECT_TRUE(chat_template.uses_variable("add_generation_prompt"));
    EXPECT_EQ(chat_template.uses_variable("enable_thinking"), row.knows_thinking);
  }
}

TEST(ChatTemplate, TellsWhichVariablesAreRead) {
  const ChatTemplate chat_template(
      "{% set written = 1 %}{% for item in messages %}{{ item.attribute }}{% endfor %}"
      "{% macro m(param) %}{{ inside }}{% endmacro %}{{ m(named=argument) }}");
  for (const char* name : {"messages", "item", "inside", "argument", "m"}) {
    EXPECT_TRUE(chat_template.uses_variable(name)) << name;
  }
  for (const char* name : {"written", "attribute", "param", "named", "enable_thinking"}) {
    EXPECT_FALSE(chat_template.uses_variable(name)) << name;
  }
}

}  // namespace
}  // namespace apr
