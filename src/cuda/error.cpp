#include "cuda/error.h"

#include <fmt/format.h>

#include <string_view>

#include "apr/error.h"
#include "base/log.h"

namespace apr::cuda {
namespace {

std::string with_number(const char* name, int number, const char* text) {
  return fmt::format("{} ({}): {}", name == nullptr ? "unknown status" : name, number,
                     text == nullptr ? "no description" : text);
}

// The call as written, without the table it went through; blanks of a broken line become one.
std::string call_text(std::string_view call) {
  constexpr std::string_view kTable = "api().";
  std::string text;
  while (!call.empty()) {
    if (call.starts_with(kTable)) {
      call.remove_prefix(kTable.size());
    } else if (call.front() == '\n' || (call.front() == ' ' && text.ends_with(' '))) {
      call.remove_prefix(1);
    } else {
      text += call.front();
      call.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace

std::string describe(cudaError_t status) {
  return with_number(api().cudaGetErrorName(status), status, api().cudaGetErrorString(status));
}

std::string describe(CUresult status) {
  const char* name = nullptr;
  const char* text = nullptr;
  // Both leave null behind for a number they do not know.
  if (api().cuGetErrorName(status, &name) != CUDA_SUCCESS) {
    name = nullptr;
  }
  if (api().cuGetErrorString(status, &text) != CUDA_SUCCESS) {
    text = nullptr;
  }
  return with_number(name, status, text);
}

std::string describe(cublasStatus_t status) {
  return with_number(api().cublasGetStatusName(status), status,
                     api().cublasGetStatusString(status));
}

std::string describe(nvrtcResult status) {
  return with_number("NVRTC status", status, api().nvrtcGetErrorString(status));
}

std::string failure_message(const std::string& description, const char* call, const char* file,
                            int line) {
  std::string_view path = file;
  const size_t source = path.rfind("src/");
  return fmt::format("{} failed: {} [{}:{}]", call_text(call), description,
                     source == std::string_view::npos ? path : path.substr(source), line);
}

void throw_failure(const std::string& description, const char* call, const char* file, int line) {
  throw Error(ErrorCode::kBackendUnavailable, failure_message(description, call, file, line));
}

void log_failure_message(const std::string& description, const char* call, const char* file,
                         int line) noexcept {
  try {
    log_warning(failure_message(description, call, file, line));
  } catch (...) {  // no memory for the message
  }
}

}  // namespace apr::cuda
