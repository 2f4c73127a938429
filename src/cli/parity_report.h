// What `apr parity` found, for people and scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/load.h"
#include "generate/parity_logits.h"
#include "generate/parity_ops.h"
#include "generate/parity_sequence.h"

namespace apr::cli {

struct ParityReport {
  std::string model;
  BackendChoice choice;
  nlohmann::ordered_json prefill_gemm;  // as prefill_gemm_json
  std::string oracle;                   // device name
  bool exact = false;
  bool trained = true;
  int64_t n_tokens = 0;                   // of the vocabulary that are judged
  std::vector<SequenceParity> sequences;  // ascending by length
  std::vector<LogitsParity> positions;    // of all of them
  std::optional<double> route_bound;      // none: a model without experts
  int64_t n_replays = 0;                  // passes of the oracle with a backend's choice of experts
  ParityVerdict verdict;
  std::optional<OpParityReport> ops;

  // The cosine that 8-bit activations of the prefill are held to; none: it has no such.
  std::optional<double> eight_bit_cosine() const {
    const std::string ran = prefill_gemm.is_object() ? prefill_gemm["ran"] : "";
    return ran == "dp4a"  ? std::optional(kDp4aCosine)
           : ran == "fp8" ? std::optional(kFp8Cosine)
                          : std::nullopt;
  }
  // Why this prefill cannot be compared op by op: the bound of an op is that of 16-bit products.
  // Empty where it can.
  std::string per_op_refusal() const;
  ParityBounds bounds() const { return parity_bounds(exact, trained, eight_bit_cosine()); }
  std::string route_failure() const;  // the first; empty: none
  bool passed() const {
    return verdict.passed && route_failure().empty() && (!ops || ops->passed());
  }
  std::string failure() const;  // one line
};

nlohmann::ordered_json parity_json(const ParityReport& report);
std::string parity_text(const ParityReport& report);

}  // namespace apr::cli
