// The chat template of a GGUF file: a small interpreter of the Jinja that chat templates use.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apr/tokenizer.h"

namespace apr {

// Bounds on one rendering; exceeding one is kInvalidFormat with the bound named.
struct TemplateLimits {
  int64_t max_steps = 5'000'000;          // evaluated nodes
  int max_depth = 200;                    // nesting of expressions, blocks and macro calls
  int64_t max_bytes = 256 * 1024 * 1024;  // of all strings and lists alive or made
};

class ChatTemplate {
 public:
  // Parses template text. Throws kInvalidFormat naming the line and the construct that is wrong or
  // not supported.
  explicit ChatTemplate(std::string_view source, TemplateLimits limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders with `input` (an object: messages, tools, add_generation_prompt, enable_thinking, ...)
  // as the variables. Pieces say which text the template wrote (parse_special) and which came from
  // the input; adjacent pieces of one kind are joined. The variables bos_token, eos_token,
  // pad_token,
  // ... hold texts of the model and count as the template's. Throws kInvalidFormat: a
  // raise_exception of the template with its message alone, an error of evaluation with its line.
  std::vector<TextPiece> render(const nlohmann::ordered_json& input) const;

  // Whether the template reads the variable `name` (so `--thinking on` can be refused).
  bool uses_variable(std::string_view name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All text of rendered pieces, joined.
std::string joined_text(const std::vector<TextPiece>& pieces);

}  // namespace apr
