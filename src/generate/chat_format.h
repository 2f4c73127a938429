// Messages of a conversation to prompt tokens, by the file's own chat template.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apr/chat_template.h"
#include "apr/gguf.h"
#include "apr/tokenizer.h"

namespace apr {

class ChatFormat {
 public:
  // Reads `tokenizer.chat_template` of `file`; `tokenizer` must outlive the format. Throws
  // kInvalidFormat where the file has none or it cannot be parsed.
  ChatFormat(const GgufFile& file, const Tokenizer& tokenizer);

  // Whether the template has a switch for thinking.
  bool knows_thinking() const { return knows_thinking_; }

  // The tokens up to where the answer starts. messages: an array of {"role", "content"}; what they
  // say is never read as special tokens. `thinking` counts only where the template knows it.
  // Throws kInvalidFormat with what the template objects to.
  std::vector<TokenId> encode(const nlohmann::ordered_json& messages, bool thinking) const;

 private:
  const Tokenizer* tokenizer_;
  ChatTemplate template_;
  bool knows_thinking_;
};

}  // namespace apr
