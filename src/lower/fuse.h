// Which neighbouring ops one kernel runs.
#pragma once

#include <string>
#include <vector>

#include "apr/lower.h"

namespace apr {

// A run of ops and the kernel row that covers it.
struct FusedRange {
  int first_op = 0, n_ops = 1;
  std::string kernel;
};

// The rules of the GPU, first match wins; ops that no rule covers stand alone under their own name.
//   decode   [take_rows] [rms_norm] matmul+ [add]      "matvec"        same input, add after one
//            [rms_norm] matmul matmul swiglu           "matvec_swiglu" same type and shape
//            attention [sigmoid_gate]                  "attention_decode"
//   both     [split_heads] [rms_norm]* rope rope kv_append   "qk_rope_append"
std::vector<FusedRange> fuse_for_cuda(const Plan& plan, Phase phase);

}  // namespace apr
