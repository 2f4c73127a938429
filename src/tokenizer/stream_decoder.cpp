#include "apr/tokenizer.h"
#include "tokenizer/utf8.h"

namespace apr {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string StreamDecoder::push(TokenId id) {
  pending_ += tokenizer_->token_bytes(id);
  const std::string_view text = pending_;
  std::string complete;
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Step step = utf8_step(text, pos);
    if (step.status == Utf8Status::kTruncated) break;
    complete += step.status == Utf8Status::kValid ? text.substr(pos, step.n_bytes) : kReplacement;
    pos += step.n_bytes;
  }
  pending_.erase(0, pos);
  return complete;
}

std::string StreamDecoder::flush() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return std::string(cut ? kReplacement : std::string_view());
}

}  // namespace apr
