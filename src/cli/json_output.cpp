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
                                 {"prefill", report.prefill},
                                 {"prefill_gemm", report.prefill_gemm},
                                 {"parity", report.parity}};
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

int report_error(const Error& error, OutputFormat format) {
  log_error(error.what());
  if (format != OutputFormat::kText) {
    const bool is_stream = format == OutputFormat::kNdjson;
    nlohmann::ordered_json json;
    if (is_stream) {
      json["event"] = "error";
    }
    json["error"] = {{"code", error.exit_code()},
                     {"name", error_code_row(error.code()).name},
                     {"message", error.what()}};
    if (const auto* refused = dynamic_cast<const RefusedBackend*>(&error)) {
      json["backend"] = refused->choice().to_json();
      if (!refused->parity().is_null()) {
        json["parity"] = refused->parity();
      }
    }
    write_json(json, !is_stream);
  }
  return error.exit_code();
}

}  // namespace apr::cli
