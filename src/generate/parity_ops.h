// Which op of a forward pass differs: every value that a backend materialises beside the oracle's,
// computed from that backend's own inputs, so that an error counts where it is made and nowhere
// after.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apr/backend.h"
#include "generate/moe_routes.h"

namespace apr {

// One output of one op, or what it wrote to a state, over all rows of a step.
struct OpParity {
  int op_idx = 0;  // in the plan
  std::string op;  // "blk.3.attn_q"
  OpKind kind{};
  int layer_idx = -1;
  std::string value;                         // what was compared: the output's name, or "state"
  std::string kernel;                        // of the backend's stage that made it
  int first_op = 0, n_ops = 1;               // that stage's ops
  int64_t first_position = 0, n_tokens = 0;  // of the step; decode has one token
  int64_t worst_row = 0;                     // of the step
  double cosine = 1.0;
  double relative_linf = 0.0;  // of the worst row; of integers the share that differs
  double bound = 0.0;          // on relative_linf
  bool passed = true;
  // Of a failed one: relative Linf of the worst row against f64 from the same inputs.
  std::optional<double> error_to_exact, oracle_error_to_exact;
};

struct OpParityReport {
  int64_t n_compared = 0;
  ReroutedLayers rerouted;       // where the oracle took over another choice of experts
  std::vector<OpParity> worst;   // of each kind of op the one nearest to its bound, or over it
  std::vector<OpParity> failed;  // in the order of the plan, of the first steps that have any
  std::string error;             // what the backend's forward threw; empty: nothing
  bool passed() const { return failed.empty() && error.empty(); }
};

// The largest relative Linf of an op's rows: 1e-4 in exact mode. Else 2^-8 where 11-bit operands
// are rounded (once each: 2^-11 of a term; a row's largest value is at least that of its terms'
// root mean square), 2^-5 for attention, whose scores of up to 64 are off by 2^-12 of themselves
// before the exponential.
double op_bound(OpKind kind, bool exact);

// A backend's choice of experts that differs from the oracle's only among logits within op_bound of
// each other is taken over by the oracle and counted (generate/moe_routes.h).
//
// Runs `ids` and then n_decode steps of one token on both backends (both reset first), chunk by
// chunk, and compares. `oracle` must be lowered one op a stage. Stops after the first step with a
// failure. Throws kInterrupted when `cancel` became true, and what the oracle throws.
OpParityReport compare_ops(Backend& oracle, Backend& backend, std::span<const TokenId> ids,
                           int64_t n_decode, bool exact, const std::atomic<bool>* cancel);

}  // namespace apr
