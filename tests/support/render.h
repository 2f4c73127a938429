// Renders templates in tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "apr/chat_template.h"

namespace apr::test {

inline std::string render_text(
    std::string_view source, const nlohmann::ordered_json& input = nlohmann::ordered_json::object(),
    const TemplateLimits& limits = {}) {
  return joined_text(ChatTemplate(source, limits).render(input));
}

// Pieces as one text, those of the template in brackets: "[<|im_start|>user\n]hi".
inline std::string marked_text(std::string_view source, const nlohmann::ordered_json& input) {
  std::string text;
  for (const TextPiece& piece : ChatTemplate(source).render(input)) {
    text += piece.parse_special ? "[" + piece.text + "]" : piece.text;
  }
  return text;
}

}  // namespace apr::test
