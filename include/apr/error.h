// Errors of the whole project: a failure is an exception with a code and a message; a negative
// answer ("it does not fit", "no such tensor") is a value.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

namespace apr {

// One value per exit code of the process. Codes 10 and 11 (network) of the family of tools `apr`
// belongs to are not here: nothing in `apr` talks to a network.
enum class ErrorCode : int {
  kGeneric = 1,
  kUsage = 2,                // a flag or argument is wrong
  kFileNotFound = 3,         // no such file, or not a regular file
  kInvalidFormat = 4,        // the file or input is not what it must be; prompt over the context
  kValidationFailed = 5,     // the content contradicts itself
  kModelLoad = 6,            // a good file that this build cannot run (architecture, tensors)
  kIo = 7,                   // reading or writing failed
  kInference = 8,            // the computation failed (non-finite values, ...)
  kFeatureDisabled = 9,      // not compiled into this binary
  kNotImplemented = 12,      // a known option that does nothing yet
  kParityFailed = 13,        // the GPU does not give the CPU's answer
  kBackendUnavailable = 14,  // the forced backend is not ready, or could not be used
  kInterrupted = 130,        // Ctrl-C
};

struct ErrorCodeRow {
  ErrorCode code;
  const char* name;     // stable identifier for JSON: "file_not_found"
  const char* meaning;  // one line for people
};

// Every ErrorCode once, ascending: the table behind exit codes, JSON and `--help`.
std::span<const ErrorCodeRow> error_code_table();

// The row of `code`; aborts on a value outside of the enumeration (our own bug).
const ErrorCodeRow& error_code_row(ErrorCode code);

// A failure. `what()` says what failed, where (file, tensor, byte), what was expected and found,
// and where it helps what to do next; one line, no trailing period or newline.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }

 private:
  ErrorCode code_;
};

// Reports a broken invariant of our own code on stderr and aborts; never reachable from a file,
// a flag or a device.
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);

}  // namespace apr

#define APR_CHECK(condition, message)                                 \
  do {                                                                \
    if (!(condition)) {                                               \
      ::apr::check_failed(#condition, __FILE__, __LINE__, (message)); \
    }                                                                 \
  } while (0)
