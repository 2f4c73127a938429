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
//   prefill with f16_rows, of token rows:
//            matmul+                                   "project"       same input, up to 4
//            matmul matmul swiglu                      "project_swiglu"
//            matmul add                                "project_add"
//            matmul add rms_norm                       "project_add_norm"
//            rms_norm                                  "norm_rows"     read by products alone
//            matmul matmul matmul + "attention"        "project_attention"   its q, k and v
//   both     [rms_norm] matmul moe_route                 "moe_route"     the router, in f32
//            moe_ffn [add]                             "moe_ffn"
//            [split_heads] [rms_norm]* rope rope kv_append attention [sigmoid_gate]  "attention"
std::vector<FusedRange> fuse_for_cuda(const Plan& plan, const Target& target);

// How the value lies that a stage's last op makes: as f16 or E4M3 rows where the stage can make
// them and only products read them.
ValueFormat last_value_format(const Plan& plan, const Target& target, const FusedRange& range);

}  // namespace apr
