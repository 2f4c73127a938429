// Lowering: a plan and a target become an executable plan: kernels, buffers, workspace. Pure host
// code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apr/plan.h"

namespace apr {

enum class BackendKind { kCpu, kCuda };
enum class KernelSet { kReference, kFast };  // plain loops (the oracle) / SIMD and threads
enum class Phase { kPrefill, kDecode };

// How an op's result relates to the reference kernel's.
enum class Contract { kBitwise, kBounded };

struct Target {
  BackendKind backend = BackendKind::kCpu;
  KernelSet kernels = KernelSet::kFast;
  Phase phase = Phase::kPrefill;
  int64_t max_rows = 512;      // tokens of a chunk
  int64_t max_logit_rows = 1;  // rows whose logits may be asked for in one step
  bool f16_rows = false;   // CUDA prefill: products take 16-bit rows, which fused stages hand on
  bool e4m3_rows = false;  // with f16_rows: 8-bit ones where the matrices allow (takes_e4m3)
};

// Sizes of an E4M3 product are multiples of this: both of the matrix, and its rows with padding.
constexpr int64_t kE4m3Multiple = 16;

bool takes_e4m3(const Weight& weight);

// How a value lies in the workspace.
enum class ValueFormat {
  kF32,       // [rows, row_elems] f32; or i32
  kF16Rows,   // [max_rows, row_elems] f16, then [max_rows] f32: row r is its f16 values times r's
              // f32
  kE4m3Rows,  // [padded rows, row_elems] E4M3, then [max_rows] f32; padded to a kE4m3Multiple
};

struct Stage {
  int first_op = 0, n_ops = 1;        // the range of ops covered
  std::string kernel;                 // row of the backend's kernel table: "matmul.fast"
  std::vector<ValueId> materialised;  // outputs that exist in the workspace afterwards
  Contract contract = Contract::kBitwise;
};

struct ExecPlan {
  const Plan* plan = nullptr;
  Target target;
  std::vector<Stage> stages;
  std::vector<int64_t>
      value_offset_bytes;                 // [n_values] into the workspace, 64-aligned; at max rows
  std::vector<ValueFormat> value_format;  // [n_values]
  int64_t workspace_bytes = 0;
};

// Bytes of the values of kE4m3Rows, in front of their f32.
int64_t e4m3_values_bytes(int64_t max_rows, int64_t row_elems);

// Whether all products of `id` are E4M3: each of its matrices takes them, and its rows are tokens.
bool has_e4m3_products(const Plan& plan, const Target& target, ValueId id);

// Lowers `plan`, which must outlive the result; values whose lives do not overlap share memory.
ExecPlan lower(const Plan& plan, const Target& target);

// One stage a line: ops, kernel, contract, outputs with offset and size; then the workspace.
std::string print_exec_plan(const ExecPlan& exec);

}  // namespace apr
