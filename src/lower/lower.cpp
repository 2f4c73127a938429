#include "apr/lower.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"
#include "base/format.h"
#include "lower/fuse.h"

namespace apr {
namespace {

constexpr int64_t kAlignBytes = 64;

// A fast kernel may sum in another order than the reference; these ones only move or add once.
Contract contract_of(OpKind kind, KernelSet kernels) {
  if (kernels == KernelSet::kReference) {
    return Contract::kBitwise;
  }
  switch (kind) {
    case OpKind::kEmbed:
    case OpKind::kSplitHeads:
    case OpKind::kKvAppend:
    case OpKind::kAdd:
    case OpKind::kTakeRows:
      return Contract::kBitwise;
    default:
      return Contract::kBounded;
  }
}

// First-fit placement of value lifetimes [first stage, last stage] in one workspace.
class WorkspaceLayout {
 public:
  int64_t place(int64_t size_bytes, int first_stage, int last_stage) {
    int64_t offset = 0;
    for (const Block& block : blocks_) {  // ascending by offset
      const bool overlaps_in_time =
          block.first_stage <= last_stage && first_stage <= block.last_stage;
      if (!overlaps_in_time) {
        continue;
      }
      if (offset + size_bytes <= block.offset_bytes) {
        break;
      }
      offset = std::max(offset, block.offset_bytes + block.size_bytes);
    }
    const Block placed{offset, size_bytes, first_stage, last_stage};
    blocks_.insert(std::upper_bound(blocks_.begin(), blocks_.end(), placed,
                                    [](const Block& a, const Block& b) {
                                      return a.offset_bytes < b.offset_bytes;
                                    }),
                   placed);
    total_bytes_ = std::max(total_bytes_, offset + size_bytes);
    return offset;
  }
  int64_t total_bytes() const { return total_bytes_; }

 private:
  struct Block {
    int64_t offset_bytes, size_bytes;
    int first_stage, last_stage;
  };
  std::vector<Block> blocks_;
  int64_t total_bytes_ = 0;
};

int64_t value_bytes(const Value& value, const Target& target, ValueFormat format) {
  const int64_t n_rows = value.rows == RowDomain::kTokens ? target.max_rows : target.max_logit_rows;
  int64_t size_bytes = n_rows * value.row_elems() * 4;  // f32 and i32 alike
  if (format == ValueFormat::kE4m3Rows) {               // a few padded rows may take more
    size_bytes = std::max(size_bytes, e4m3_values_bytes(n_rows, value.row_elems()) + n_rows * 4);
  }
  return (size_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

// One op a stage, under the kernel set's name.
std::vector<FusedRange> unfused_for_cpu(const Plan& plan, KernelSet kernels) {
  const char* suffix = kernels == KernelSet::kReference ? "reference" : "fast";
  std::vector<FusedRange> ranges;
  for (size_t op_idx = 0; op_idx < plan.ops.size(); ++op_idx) {
    ranges.push_back({static_cast<int>(op_idx), 1,
                      fmt::format("{}.{}", op_kind_name(plan.ops[op_idx].kind), suffix)});
  }
  return ranges;
}

// Fills in what each stage leaves in the workspace, and where.
void place_values(ExecPlan& exec) {
  const Plan& plan = *exec.plan;
  const size_t n_values = plan.values.size();
  // [n_values] the stage that makes a value, and the last one that reads it.
  std::vector<int> made(n_values, -1), read(n_values, -1);
  for (size_t stage_idx = 0; stage_idx < exec.stages.size(); ++stage_idx) {
    const Stage& stage = exec.stages[stage_idx];
    for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
      const Op& op = plan.ops[static_cast<size_t>(op_idx)];
      for (const ValueId id : op.outputs) {
        made[static_cast<size_t>(id)] = static_cast<int>(stage_idx);
      }
      for (const ValueId id : op.inputs) {
        read[static_cast<size_t>(id)] = static_cast<int>(stage_idx);
      }
    }
  }
  read[static_cast<size_t>(plan.logits)] = static_cast<int>(exec.stages.size());

  WorkspaceLayout layout;
  exec.value_offset_bytes.assign(n_values, -1);
  for (size_t id = 0; id < n_values; ++id) {
    Stage& stage = exec.stages[static_cast<size_t>(made[id])];
    if (stage.n_ops > 1 && read[id] == made[id]) {
      continue;  // only the stage itself reads it
    }
    stage.materialised.push_back(static_cast<ValueId>(id));
    exec.value_offset_bytes[id] =
        layout.place(value_bytes(plan.values[id], exec.target, exec.value_format[id]), made[id],
                     std::max(made[id], read[id]));
  }
  exec.workspace_bytes = layout.total_bytes();
}

}  // namespace

bool takes_e4m3(const Weight& weight) {
  return weight.n_rows % kE4m3Multiple == 0 && weight.n_cols % kE4m3Multiple == 0;
}

int64_t e4m3_values_bytes(int64_t max_rows, int64_t row_elems) {
  return (max_rows + kE4m3Multiple - 1) / kE4m3Multiple * kE4m3Multiple * row_elems;
}

bool has_e4m3_products(const Plan& plan, const Target& target, ValueId id) {
  if (!target.e4m3_rows || plan.values[static_cast<size_t>(id)].rows != RowDomain::kTokens) {
    return false;
  }
  return std::all_of(plan.ops.begin(), plan.ops.end(), [&](const Op& op) {
    return op.kind != OpKind::kMatmul || op.inputs[0] != id || takes_e4m3(*op.weights[0]);
  });
}

ExecPlan lower(const Plan& plan, const Target& target) {
  APR_CHECK(target.max_rows >= 1 && target.max_logit_rows >= 1, "a target has rows");
  ExecPlan exec;
  exec.plan = &plan;
  exec.target = target;
  const std::vector<FusedRange> ranges = target.backend == BackendKind::kCpu
                                             ? unfused_for_cpu(plan, target.kernels)
                                             : fuse_for_cuda(plan, target);
  exec.value_format.assign(plan.values.size(), ValueFormat::kF32);
  for (const FusedRange& range : ranges) {
    const Op& last = plan.ops[static_cast<size_t>(range.first_op + range.n_ops - 1)];
    if (!last.outputs.empty()) {
      exec.value_format[static_cast<size_t>(last.outputs[0])] =
          last_value_format(plan, target, range);
    }
    Contract contract = Contract::kBitwise;
    for (int op_idx = range.first_op; op_idx < range.first_op + range.n_ops; ++op_idx) {
      const Op& op = plan.ops[static_cast<size_t>(op_idx)];
      if (contract_of(op.kind, target.kernels) == Contract::kBounded) {
        contract = Contract::kBounded;
      }
    }
    exec.stages.push_back({range.first_op, range.n_ops, range.kernel, {}, contract});
  }
  place_values(exec);
  return exec;
}

std::string print_exec_plan(const ExecPlan& exec) {
  const Target& target = exec.target;
  std::string out = fmt::format("{} plan: backend {}, up to {} rows, {} logit rows\n",
                                target.phase == Phase::kDecode ? "decode" : "prefill",
                                target.backend == BackendKind::kCpu ? "cpu" : "cuda",
                                target.max_rows, target.max_logit_rows);
  for (size_t stage_idx = 0; stage_idx < exec.stages.size(); ++stage_idx) {
    const Stage& stage = exec.stages[stage_idx];
    std::string outputs;
    for (const ValueId id : stage.materialised) {
      const Value& value = exec.plan->values[static_cast<size_t>(id)];
      const ValueFormat format = exec.value_format[static_cast<size_t>(id)];
      outputs +=
          fmt::format("  {}{} @{} {}", value.name,
                      format == ValueFormat::kF16Rows    ? ".f16"
                      : format == ValueFormat::kE4m3Rows ? ".e4m3"
                                                         : "",
                      exec.value_offset_bytes[static_cast<size_t>(id)],
                      format_bytes(static_cast<uint64_t>(value_bytes(value, target, format))));
    }
    out += fmt::format("{:4}  ops {}..{}  {:24} {:8}{}\n", stage_idx, stage.first_op,
                       stage.first_op + stage.n_ops - 1, stage.kernel,
                       stage.contract == Contract::kBitwise ? "bitwise" : "bounded", outputs);
  }
  out += fmt::format("{} stages, workspace {}\n", exec.stages.size(),
                     format_bytes(static_cast<uint64_t>(exec.workspace_bytes)));
  return out;
}

}  // namespace apr
