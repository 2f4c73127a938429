#include "generate/stop_matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "apr/error.h"
#include "tokenizer/utf8.h"

namespace apr {
namespace {

// Bytes at the end of `text` that are a start, but not all, of `stop`.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) {
      return n;
    }
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stop_strings)
    : stop_strings_(std::move(stop_strings)) {
  for (const std::string& stop : stop_strings_) {
    if (stop.empty() || valid_utf8_prefix_bytes(stop) != stop.size()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("stop string {}; give one or more characters of UTF-8 text",
                              stop.empty() ? "is empty" : "is not valid UTF-8"));
    }
  }
}

std::string StopMatcher::push(const std::string& text) {
  if (stopped_) {
    return {};
  }
  held_ += text;
  // The one that is complete first counts, so that the way text is cut into pieces does not matter.
  size_t first = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stop_strings_) {
    const size_t found = held_.find(stop);
    if (found != std::string::npos && found + stop.size() < end) {
      first = found;
      end = found + stop.size();
    }
  }
  std::string ready;
  if (first != std::string::npos) {
    stopped_ = true;
    ready = held_.substr(0, first);
    held_.clear();
    return ready;
  }
  size_t n_held = 0;
  for (const std::string& stop : stop_strings_) {
    n_held = std::max(n_held, overlap(held_, stop));
  }
  ready = held_.substr(0, held_.size() - n_held);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopMatcher::flush() {
  return std::exchange(held_, {});
}

}  // namespace apr
