// One row of one op's output in f64 from given f32 inputs: the judge between two backends.
#pragma once

#include <span>
#include <vector>

#include "apr/plan.h"
#include "apr/tokenizer.h"

namespace apr {

// A step as one op saw it.
struct ExactStep {
  const Plan& plan;
  const Op& op;
  std::vector<std::vector<float>> inputs;  // order of op.inputs: [rows of the step, row_elems]
  std::span<const TokenId> ids;            // [n_tokens]
  std::span<const int64_t> logit_rows;     // [n_logit_rows]
  int64_t first_position = 0;              // of ids[0]
  // Attention: [positions, kv_dim] each, up to the step's last. Recurrent ops: the state before.
  std::span<const float> keys, values, state;
};

// Output `out_idx` of the op at row `row`, sums and functions in f64, the angle of a rotation in
// f32 as design.md says; empty for an output of integers.
std::vector<double> exact_row(const ExactStep& step, size_t out_idx, int64_t row);

}  // namespace apr
