// Which flags that were given have no effect in a run, and why: one table for all verbs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apr/backend.h"
#include "apr/sampling.h"
#include "cli/load.h"

namespace apr::cli {

// What of a run decides which flags count; the defaults: all do.
struct RunFacts {
  bool uses_gpu = true, uses_cpu = true;  // to answer, or to judge the other's answer
  bool cpu_was_asked = false;             // by a flag
  bool gpu_was_tried = false;             // and left: flags of a GPU had their effect
  bool runs_prompt = true;                // not so: apr parity --tensors
  bool is_serial = false;                 // a GPU takes the prompt a token at a time
  bool gates_skipped = false;             // SKIP_PARITY_GATE=1
  bool gpu_overrides_backend = false;     // --gpu beside --backend cpu
  bool is_plan = false, is_lowered = false;
  bool card_is_described = false;  // apr fit with --vram or --free
  SamplingParams sampling;         // of apr run; no other verb has its flags
};

// Of a run by `backend` (null: of no model), which `choice` led to.
RunFacts run_facts(const BackendOptions& options, const BackendChoice& choice,
                   const Backend* backend);

// "--seed, --top-k (why); --device (why)" of those in `given`, as given_flags, that have no effect;
// empty where all have one. A flag without effect for two reasons is named with one of them.
std::string ignored_flags(std::span<const std::string> given, const RunFacts& facts);

// Every flag and variable that ignored_flags knows.
std::vector<std::string> ignorable_flags();

// Says so in one warning, also of variables in the environment that only a GPU's prefill heeds.
void warn_of_ignored(std::vector<std::string> given, const RunFacts& facts);

}  // namespace apr::cli
