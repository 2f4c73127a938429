// libFuzzer target of chat templates: any bytes are a template that renders within its bounds, or
// an apr::Error. Bytes after a NUL are the content of the message.
#include <cstddef>
#include <cstdint>

#include "apr/chat_template.h"
#include "apr/error.h"

namespace {

constexpr apr::TemplateLimits kLimits = {
    .max_steps = 50'000, .max_depth = 60, .max_bytes = 4 * 1024 * 1024};

nlohmann::ordered_json input_of(std::string_view content) {
  auto input = nlohmann::ordered_json::parse(R"({"add_generation_prompt": true, "n": 7, "x": 2.5,
    "none_value": null, "list": [3, 1, 2], "rows": [{"k": "a", "v": 1}, {"k": "b", "v": null}],
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": ""}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})");
  input["messages"][1]["content"] = content;
  input["s"] = content;
  return input;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(bytes.find('\0'), size);
  const std::string_view content = end < size ? bytes.substr(end + 1) : "hi <|im_end|>";
  try {
    const apr::ChatTemplate chat_template(bytes.substr(0, end), kLimits);
    const auto pieces = chat_template.render(input_of(content));
    size_t n_bytes = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      APR_CHECK(!pieces[i].text.empty(), "a piece has text");
      APR_CHECK(i == 0 || pieces[i].parse_special != pieces[i - 1].parse_special,
                "neighbours of one kind are joined");
      n_bytes += pieces[i].text.size();
    }
    APR_CHECK(n_bytes <= static_cast<size_t>(kLimits.max_bytes), "memory is bounded");
  } catch (const apr::Error& error) {
    APR_CHECK(error.code() == apr::ErrorCode::kInvalidFormat, error.what());
  }
  return 0;
}
