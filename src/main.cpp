// The program: parses, dispatches, and turns whatever is thrown into one line and an exit code.
#include <unistd.h>

#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "apr/error.h"
#include "cli/command_line.h"
#include "cli/json_output.h"

namespace {

// The exit code of `error` as reported; where not even the report could be written, kIo.
int report(const apr::Error& error, apr::cli::OutputFormat format) {
  try {
    return apr::cli::report_error(error, format);
  } catch (const std::exception&) {
    return static_cast<int>(apr::ErrorCode::kIo);
  }
}

// A model file that someone cuts while it is mapped raises SIGBUS where its pages are gone. Nothing
// but what a signal handler may do; a bus error of another kind is our own bug and ends as one.
extern "C" void handle_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    std::signal(signal, SIG_DFL);
    return;  // raised again by the same instruction
  }
  constexpr char kMessage[] =
      "error: a model file was cut, or could not be read, while it was in use\n";
  static_cast<void>(::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0);
  ::_exit(static_cast<int>(apr::ErrorCode::kIo));
}

void catch_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = handle_bus_error;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  catch_bus_errors();
  auto format = apr::cli::OutputFormat::kText;
  try {
    return apr::cli::run_command_line(std::vector<std::string>(argv + 1, argv + argc), format);
  } catch (const apr::Error& error) {
    return report(error, format);
  } catch (const std::bad_alloc&) {
    return report({apr::ErrorCode::kGeneric, "out of memory"}, format);
  } catch (const std::exception& error) {
    return report({apr::ErrorCode::kGeneric, error.what()}, format);
  } catch (...) {
    return report({apr::ErrorCode::kGeneric, "an unknown failure"}, format);
  }
}
