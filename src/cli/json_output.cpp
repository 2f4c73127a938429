#include "cli/json_output.h"

#include <cmath>

#include "base/log.h"
#include "cli/output.h"

namespace apr::cli {
namespace {

// Rounded for reading: one digit is enough for a rate, two for milliseconds.
double one_digit(double value) {
  return std::round(value * 10.0) / 10.0;
}
double two_digits(double value) {
  return std::round(value * 100.0) / 100.0;
}

}  // namespace

nlohmann::ordered_json run_json(const RunReport& report) {
  const GenerateResult& result = report.result;
  nlohmann::ordered_json json = {{"model", report.model},
                                 {"text", result.text},
                                 {"tokens", result.tokens},
                                 {"tokens_generated", result.tokens.size()},
                                 {"max_tokens", nullptr},
                                 {"prompt_tokens", result.prompt_tokens},
                                 {"finish_reason", finish_reason_name(result.finish_reason)},
                                 {"tok_per_sec", one_digit(result.tok_per_sec())},
                                 {"load_ms", two_digits(report.load_ms)},
                                 {"prefill_ms", two_digits(result.prefill_ms)},
                                 {"decode_ms", two_digits(result.decode_ms)},
                                 {"inference_time_ms", two_digits(report.total_ms)},
                                 {"used_gpu", report.backend.used_gpu()},
                                 {"backend", report.backend.to_json()},
                                 {"prefill_gemm", report.prefill_gemm}};
  if (report.max_tokens) {
    json["max_tokens"] = *report.max_tokens;
  }
  return json;
}

nlohmann::ordered_json token_event(int64_t index, TokenId id, const std::string& text) {
  return {{"event", "token"}, {"index", index}, {"token_id", id}, {"text", text}};
}

nlohmann::ordered_json final_event(const RunReport& report) {
  nlohmann::ordered_json json = {{"event", "final"}};
  json.update(run_json(report));
  return json;
}

int report_error(ErrorCode code, const std::string& message, OutputFormat format) {
  log_error(message);
  if (format != OutputFormat::kText) {
    const bool is_stream = format == OutputFormat::kNdjson;
    nlohmann::ordered_json json;
    if (is_stream) {
      json["event"] = "error";
    }
    json["error"] = {{"code", static_cast<int>(code)},
                     {"name", error_code_row(code).name},
                     {"message", message}};
    write_json(json, !is_stream);
  }
  return static_cast<int>(code);
}

}  // namespace apr::cli
