#include "cli/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "apr/error.h"

namespace apr::cli {
namespace {

[[noreturn]] void fail_write(int error) {
  if (error == EPIPE) {  // only where our parent had SIGPIPE ignored
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  throw Error(ErrorCode::kIo, fmt::format("writing to stdout failed: {}", std::strerror(error)));
}

std::string dump(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n_bytes = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n_bytes < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN) {  // someone made the terminal or pipe non-blocking
        pollfd ready{STDOUT_FILENO, POLLOUT, 0};
        ::poll(&ready, 1, -1);
        continue;
      }
      fail_write(errno);
    }
    text.remove_prefix(static_cast<size_t>(n_bytes));
  }
}

void write_json(const nlohmann::ordered_json& value, bool indented) {
  constexpr int kIndent = 2, kOneLine = -1;
  write_stdout(dump(value, indented ? kIndent : kOneLine) + "\n");
}

std::string printable(std::string_view text) {
  const std::string text_in_quotes = in_quotes(text);
  return text_in_quotes.substr(1, text_in_quotes.size() - 2);
}

std::string in_quotes(std::string_view text) {
  return dump(nlohmann::ordered_json(std::string(text)), -1);
}

bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}
bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}

}  // namespace apr::cli
