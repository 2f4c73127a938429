#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "apr/error.h"

namespace apr::cli {
namespace {

// A signal handler reaches nothing but what is static.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void handle_interrupt(int) {
  if (interrupted.exchange(true)) {
    ::_exit(static_cast<int>(ErrorCode::kInterrupted));
  }
}

}  // namespace

const std::atomic<bool>* catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = handle_interrupt;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // not SA_RESTART: a read that waits for a prompt must end too
  ::sigaction(SIGINT, &action, nullptr);
  return &interrupted;
}

void check_interrupted() {
  if (interrupted.load()) {
    throw Error(ErrorCode::kInterrupted, "interrupted");
  }
}

}  // namespace apr::cli
