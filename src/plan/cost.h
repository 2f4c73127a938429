// What a step costs at least: bytes that must be read and operations that must be done.
#pragma once

#include "apr/plan.h"

namespace apr {

struct StepCost {
  double weight_bytes = 0.0;  // of every matrix in use, as stored: once a step, however many rows
  double state_bytes = 0.0;  // keys and values of all positions read, recurrent state read, written
  double flops = 0.0;        // multiplications and additions of products and of attention
};

// Of n_tokens at positions [first_position, first_position + n_tokens) with n_logit_rows rows of
// logits. kv_elem_bytes: of one cached key or value element. Of experts, n_tokens x n_used are
// counted, at most all.
StepCost step_cost(const Plan& plan, int64_t n_tokens, int64_t first_position, int64_t n_logit_rows,
                   int64_t kv_elem_bytes);

}  // namespace apr
