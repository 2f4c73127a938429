// The JSON that `apr` prints: the report of a run, token events, errors.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apr/error.h"
#include "apr/generate.h"
#include "cli/load.h"
#include "cli/options.h"

namespace apr::cli {

struct RunReport {
  std::string model;
  BackendChoice backend;
  nlohmann::ordered_json prefill;       // as prefill_json
  nlohmann::ordered_json prefill_gemm;  // as prefill_gemm_json
  nlohmann::ordered_json parity;        // as ParityRecord
  std::optional<int64_t> max_tokens;
  GenerateResult result;
  double load_ms = 0.0;
  double total_ms = 0.0;  // load, prefill and decode
};

// The answer of `apr run --json`. tok_per_sec is of decode alone; inference_time_ms includes the
// load, as in the tools `apr` belongs to; load_ms, prefill_ms and decode_ms stand beside it.
nlohmann::ordered_json run_json(const RunReport& report);

// {"event": "token", ...} of a streamed answer.
nlohmann::ordered_json token_event(int64_t index, TokenId id, const std::string& text);

// {"event": "final", ...}: the same report after the tokens.
nlohmann::ordered_json final_event(const RunReport& report);

// Says on stderr, and in a JSON format also on stdout, what went wrong; returns the exit code.
// Object: {"error": {"code", "name", "message"}}, with "event": "error" in ndjson; of a
// RefusedBackend with "backend" and, where the gates judged, "parity", as in an answer.
int report_error(const Error& error, OutputFormat format);

}  // namespace apr::cli
