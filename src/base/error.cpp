#include "apr/error.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace apr {
namespace {

constexpr std::array kRows = {
    ErrorCodeRow{ErrorCode::kGeneric, "error", "an error of no other kind"},
    ErrorCodeRow{ErrorCode::kUsage, "usage", "a flag or argument is wrong"},
    ErrorCodeRow{ErrorCode::kFileNotFound, "file_not_found", "no such file"},
    ErrorCodeRow{ErrorCode::kInvalidFormat, "invalid_format",
                 "the file or the input is not what it must be, or does not fit the context"},
    ErrorCodeRow{ErrorCode::kValidationFailed, "validation_failed",
                 "the content contradicts itself"},
    ErrorCodeRow{ErrorCode::kModelLoad, "model_load", "the model cannot be run by this build"},
    ErrorCodeRow{ErrorCode::kIo, "io", "reading or writing failed"},
    ErrorCodeRow{ErrorCode::kInference, "inference", "the computation failed"},
    ErrorCodeRow{ErrorCode::kFeatureDisabled, "feature_disabled",
                 "the backend asked for is not compiled in"},
    ErrorCodeRow{ErrorCode::kNotImplemented, "not_implemented", "the option does nothing yet"},
    ErrorCodeRow{ErrorCode::kParityFailed, "parity_failed",
                 "the GPU does not give the CPU's answer"},
    ErrorCodeRow{ErrorCode::kBackendUnavailable, "backend_unavailable",
                 "the backend asked for is not ready"},
    ErrorCodeRow{ErrorCode::kInterrupted, "interrupted", "stopped by Ctrl-C"},
};

}  // namespace

std::span<const ErrorCodeRow> error_code_table() {
  return kRows;
}

const ErrorCodeRow& error_code_row(ErrorCode code) {
  for (const ErrorCodeRow& row : kRows) {
    if (row.code == code) {
      return row;
    }
  }
  check_failed("code is in the table", __FILE__, __LINE__, std::to_string(static_cast<int>(code)));
}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "apr: internal error: %s (%s:%d): %s\n", condition, file, line,
               message.c_str());
  std::abort();
}

}  // namespace apr
