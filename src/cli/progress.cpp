#include "cli/progress.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/output.h"

namespace apr::cli {

Progress::Progress(bool is_quiet) : is_enabled_(!is_quiet && stderr_is_terminal()) {}

void Progress::show(const std::string& text) {
  if (is_enabled_) {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    is_shown_ = true;
  }
}

void Progress::show_prefill(int64_t done_tokens, int64_t total_tokens) {
  show(fmt::format("prompt: {} of {} tokens", done_tokens, total_tokens));
}

void Progress::clear() {
  if (is_shown_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
    is_shown_ = false;
  }
}

}  // namespace apr::cli
