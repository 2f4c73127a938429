#include "generate/chat_format.h"

#include <fmt/format.h>

#include "apr/error.h"

namespace apr {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";
constexpr const char* kThinkingVariable = "enable_thinking";

std::string_view template_text(const GgufFile& file) {
  const auto text = file.get_string(kTemplateKey);
  if (!text) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{} has no chat template ({}); run it without --chat and write the "
                            "prompt in the form the model was trained on",
                            file.name(), kTemplateKey));
  }
  return *text;
}

std::string token_text(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.token_bytes(*id)) : std::string();
}

}  // namespace

ChatFormat::ChatFormat(const GgufFile& file, const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer),
      template_(template_text(file)),
      knows_thinking_(template_.uses_variable(kThinkingVariable)) {}

std::vector<TokenId> ChatFormat::encode(const nlohmann::ordered_json& messages,
                                        bool thinking) const {
  nlohmann::ordered_json input = {{"messages", messages},
                                  {"add_generation_prompt", true},
                                  {"bos_token", token_text(*tokenizer_, tokenizer_->bos_id())},
                                  {"eos_token", token_text(*tokenizer_, tokenizer_->eos_id())}};
  if (knows_thinking_) {
    input[kThinkingVariable] = thinking;
  }
  return tokenizer_->encode(template_.render(input));
}

}  // namespace apr
