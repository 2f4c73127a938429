#include "apr/chat_template.h"

#include <fmt/format.h>

#include <set>

#include "apr/error.h"
#include "tokenizer/jinja/interp.h"
#include "tokenizer/jinja/parser.h"

namespace apr {

namespace {
// A byte of template text becomes at most about this many bytes of nodes.
constexpr int64_t kNodeBytesPerByte = 16;
}  // namespace

struct ChatTemplate::Impl {
  Impl(std::string_view text, const TemplateLimits& bounds)
      : limits{bounds.max_steps, bounds.max_depth, bounds.max_bytes},
        source(checked(text, bounds)),
        arena(bounds.max_bytes) {
    jinja::Parser parser(source, limits, arena);
    try {
      arena.charge(source.size());
      body = parser.parse();
    } catch (const jinja::Fault& fault) {
      jinja::fail_at(parser.line(), fault.what());
    }
    reads = parser.take_reads();
  }

  static std::string checked(std::string_view text, const TemplateLimits& bounds) {
    const int64_t max_source_bytes = bounds.max_bytes / kNodeBytesPerByte;
    if (static_cast<int64_t>(text.size()) > max_source_bytes) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("chat template: {} bytes of text are above the bound of {}",
                              text.size(), max_source_bytes));
    }
    return jinja::normalize_newlines(text);
  }

  jinja::Limits limits;
  std::string source;  // nodes refer to it
  jinja::Arena arena;
  std::span<const jinja::Stmt*> body;
  std::set<std::string, std::less<>> reads;
};

ChatTemplate::ChatTemplate(std::string_view source, TemplateLimits limits)
    : impl_(std::make_unique<Impl>(source, limits)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::vector<TextPiece> ChatTemplate::render(const nlohmann::ordered_json& input) const {
  jinja::Interp interp(impl_->limits, impl_->arena.used_bytes());
  return interp.render(impl_->body, input);
}

bool ChatTemplate::uses_variable(std::string_view name) const {
  return impl_->reads.find(name) != impl_->reads.end();
}

std::string joined_text(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace apr
