// Runs the same tokens on a backend and on its oracle, for the verdicts of gate.h.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apr/backend.h"
#include "generate/gate.h"

namespace apr {

struct Probe {
  std::span<const TokenId> ids;
  bool with_decode = false;  // then one step more: the oracle's choice after the last of `ids`
  std::vector<int64_t> batch_rows = {};  // at most max_rows() each: see run_probe
  bool exact = false;  // the backend runs its exact kernels: bounds of router logits
  std::function<void(const char* whose)> on_start = {};  // "GPU", "CPU": who computes now
};

struct ProbeResult {
  std::vector<GatePosition> positions;  // one for each of `ids`, then of the decode step
  // [batch_rows] of the ids, or the first of them, in a batch of so many rows
  std::vector<std::vector<GatePosition>> batches;
  std::optional<Error> failure;  // of the backend: it gave no logits
  int64_t n_rerouted = 0;        // choices of experts that the oracle took over
  std::string wrong_route;       // the first it did not; empty: none
  bool cancelled = false;
};

// Runs the probe from position 0: `backend` in chunks of max_rows() as a prompt would be, each as
// often as it takes to see the logits of every row of it, max_logit_rows() at a time and the rest
// taken back; then the oracle, in one batch, which its limits must allow. Other kernels run batches
// of other sizes: the backend also runs a batch of each of batch_rows, the first of the ids, or all
// with as many more behind them, which those before do not see. Where there are experts the oracle
// takes over the backend's choices within the bound of moe_routes.h and is judged as it is beyond.
// Both sequences are empty before and after. Throws what the oracle throws.
ProbeResult run_probe(Backend& oracle, Backend& backend, const Probe& probe,
                      const std::atomic<bool>* cancel);

}  // namespace apr
