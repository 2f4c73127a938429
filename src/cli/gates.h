// What a run on the GPU has to pass: the load gate and the guard on the prompt, or a receipt that
// it passed them before.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cli/load.h"
#include "cli/progress.h"

namespace apr::cli {

struct GateRequest {
  const Model& model;
  std::string name;  // as the user gave it, for messages; "demo": the one in the program
  EngineOptions engine;
  int64_t context = 0;              // positions of the run; more than the prompt has
  std::span<const TokenId> prompt;  // the guard judges its end
  std::optional<TokenId> bos;
  bool revalidate = false;  // receipts are not looked at
  const std::atomic<bool>* cancel = nullptr;
  Progress& progress;
};

// What was found: "parity" of every JSON answer.
struct ParityRecord {
  std::string status = "not-run";     // "PASS", "FAILED", "skipped"
  std::optional<double> cosine;       // of the load gate
  std::optional<double> min_cosine;   // of the guard
  int64_t positions = 0;              // judged by both
  std::string source = "not-judged";  // of the guard's verdict: "fresh", "receipt"
  bool has_compared() const {         // the GPU with the CPU, in this run
    return (status == "PASS" || status == "FAILED") && source != "receipt";
  }
  nlohmann::ordered_json to_json() const;
};

struct Admitted {
  std::unique_ptr<Backend> backend;
  ParityRecord parity;
};

// Where backends come from: make_backend and its facts, in tests others.
struct GateBackends {
  // Asked again for exact kernels, or with fp8_prefill_off, where those that were measured are not
  // good enough.
  std::function<std::unique_ptr<Backend>(const EngineOptions& engine, BackendChoice& choice)> make;
  std::function<bool(const Backend&)> runs_fp8;  // in its prefill
};

// A backend for the run, and one line on stderr about which and why. A GPU that fails the load gate
// or the guard, or that stops, is refused where it was forced: throws RefusedBackend with
// kParityFailed (the load gate) or kBackendUnavailable. Where it was not forced the CPU runs, and
// `choice` says so. Throws kInference where the CPU's own logits are not finite; kInterrupted.
Admitted admit(const GateRequest& request, BackendChoice& choice, const GateBackends& backends);

// The same with make_backend.
Admitted admit(const GateRequest& request, BackendChoice& choice);

// To be called while an Error of the answer is handled. Where the GPU stopped before the first
// token and was not forced, the CPU takes its place, with one line; everything else is thrown on,
// of a forced GPU as RefusedBackend.
void leave_gpu(const GateRequest& request, BackendChoice& choice, Admitted& admitted,
               bool has_tokens);

}  // namespace apr::cli
