// The program: parses, dispatches, and turns whatever is thrown into one line and an exit code.
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

}  // namespace

int main(int argc, char** argv) {
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
