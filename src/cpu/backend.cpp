#include "cpu/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "apr/error.h"
#include "cpu/fast/ops.h"

namespace apr::cpu {
namespace {

bool all_finite(const float* x, int64_t n_elems) {
  constexpr uint32_t kExponent = 0x7f800000;  // all ones: infinity or NaN
  uint32_t bad = 0;
  for (int64_t elem = 0; elem < n_elems; ++elem) {
    bad |= (std::bit_cast<uint32_t>(x[elem]) & kExponent) == kExponent ? 1U : 0U;
  }
  return bad == 0;
}

}  // namespace

CpuBackend::CpuBackend(const Model& model, const CpuBackendOptions& options, int64_t context,
                       int64_t chunk)
    : model_(model),
      plan_(build_plan(model)),
      exec_(lower(plan_, {BackendKind::kCpu, options.kernels, Phase::kPrefill, chunk,
                          options.max_logit_rows})),
      workspace_((exec_.workspace_bytes + 3) / 4),
      state_(plan_, context),
      pool_(options.n_threads > 0 ? options.n_threads : available_cores()) {
  for (const Stage& stage : exec_.stages) {
    kernels_.push_back(find_kernel(stage.kernel));
    APR_CHECK(kernels_.back() != nullptr, stage.kernel);
  }
}

std::string CpuBackend::device_name() const {
  return fmt::format("CPU, {} thread{}, {}", pool_.n_threads(), pool_.n_threads() == 1 ? "" : "s",
                     fast::isa_name());
}

StageIo CpuBackend::stage_io(const Op& op, std::span<const TokenId> ids,
                             std::span<const int64_t> logit_rows) {
  StageIo io;
  io.op = &op;
  for (size_t idx = 0; idx < op.inputs.size(); ++idx) {
    io.in[idx] = value(op.inputs[idx]);
  }
  for (size_t idx = 0; idx < op.outputs.size(); ++idx) {
    io.out[idx] = value(op.outputs[idx]);
  }
  io.ids = ids.data();
  io.logit_rows = logit_rows.data();
  io.n_tokens = static_cast<int64_t>(ids.size());
  io.n_logit_rows = static_cast<int64_t>(logit_rows.size());
  io.first_position = state_.n_past();
  io.in_row_elems = op.inputs.empty() ? 0 : value_info(op.inputs[0]).row_elems();
  if (!op.outputs.empty()) {
    const Value& output = value_info(op.outputs[0]);
    io.row_elems = output.row_elems();
    io.n_rows = output.rows == RowDomain::kTokens ? io.n_tokens : io.n_logit_rows;
  }
  if (op.state_idx >= 0 &&
      plan_.states[static_cast<size_t>(op.state_idx)].kind == StateKind::kKvCache) {
    io.k_cache = state_.k_cache(op.state_idx);
    io.v_cache = state_.v_cache(op.state_idx);
  } else if (op.state_idx >= 0) {
    io.state_in = state_.recurrent_in(op.state_idx);
    io.state_out = state_.recurrent_out(op.state_idx);
  }
  io.inv_freq = model_.desc().rope.inv_freq.data();
  io.rope_magnitude = model_.desc().rope.magnitude;
  io.pool = &pool_;
  return io;
}

// A step of n_tokens that is running: its values in the workspace, its state before the commit.
class CpuBackend::ObservedStep final : public StepValues {
 public:
  ObservedStep(CpuBackend& backend, int64_t n_tokens, int64_t n_logit_rows)
      : backend_(backend), n_tokens_(n_tokens), n_logit_rows_(n_logit_rows) {}

  std::vector<float> read(ValueId id) const override {
    const float* rows = backend_.value(id);
    return {rows, rows + n_elems(id)};
  }
  void write(ValueId id, std::span<const float> rows) override {
    APR_CHECK(static_cast<int64_t>(rows.size()) == n_elems(id), "rows of the step");
    std::memcpy(backend_.value(id), rows.data(), rows.size_bytes());
  }
  std::vector<float> read_state(int state_idx) const override {
    std::vector<float> copy;
    for (const std::span<float> part : parts(state_idx)) {
      copy.insert(copy.end(), part.begin(), part.end());
    }
    return copy;
  }
  void write_state(int state_idx, std::span<const float> state) override {
    for (const std::span<float> part : parts(state_idx)) {
      std::memcpy(part.data(), state.data(), part.size_bytes());
      state = state.subspan(part.size());
    }
  }

 private:
  int64_t n_elems(ValueId id) const {
    const Value& value = backend_.value_info(id);
    return (value.rows == RowDomain::kTokens ? n_tokens_ : n_logit_rows_) * value.row_elems();
  }
  std::vector<std::span<float>> parts(int state_idx) const {
    const StateSpec& spec = backend_.plan_.states[static_cast<size_t>(state_idx)];
    const SequenceState& state = backend_.state_;
    if (spec.kind != StateKind::kKvCache) {
      return {{state.recurrent_out(state_idx), static_cast<size_t>(spec.elems)}};
    }
    const int64_t kv_dim = spec.elems_per_position / 2;
    const int64_t first = state.n_past() * kv_dim;
    const auto size = static_cast<size_t>(n_tokens_ * kv_dim);
    return {{state.k_cache(state_idx) + first, size}, {state.v_cache(state_idx) + first, size}};
  }
  CpuBackend& backend_;
  int64_t n_tokens_, n_logit_rows_;
};

CpuBackend::Run CpuBackend::run_stages(std::span<const TokenId> ids,
                                       std::span<const int64_t> logit_rows,
                                       const std::atomic<bool>* cancel, bool check_all,
                                       const Op** bad_op) {
  for (size_t stage_idx = 0; stage_idx < exec_.stages.size(); ++stage_idx) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return Run::kCancelled;
    }
    const Op& op = plan_.ops[static_cast<size_t>(exec_.stages[stage_idx].first_op)];
    const StageIo io = stage_io(op, ids, logit_rows);
    if (io.n_rows == 0 && !op.outputs.empty()) {
      continue;  // no logits were asked for
    }
    kernels_[stage_idx](io);
    if (observer_ != nullptr) {
      ObservedStep values(*this, io.n_tokens, io.n_logit_rows);
      observer_->after_stage(exec_, exec_.stages[stage_idx], values);
    }
    if (!check_all && op.kind != OpKind::kRmsNorm && op.outputs != std::vector{plan_.logits}) {
      continue;
    }
    for (const ValueId id : op.outputs) {
      const Value& output = value_info(id);
      if (output.type == ValueType::kF32 &&
          !all_finite(value(id), io.n_rows * output.row_elems())) {
        *bad_op = &op;
        return Run::kNonFinite;
      }
    }
  }
  return Run::kDone;
}

bool CpuBackend::forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
                         std::span<float> logits, const std::atomic<bool>* cancel) {
  const int64_t n_tokens = static_cast<int64_t>(ids.size());
  const int64_t vocab_rows = model_.desc().vocab_rows;
  APR_CHECK(n_tokens >= 1 && n_tokens <= max_rows(), "a step has 1 to max_rows ids");
  APR_CHECK(static_cast<int64_t>(logit_rows.size()) <= max_logit_rows(), "logit rows fit");
  APR_CHECK(n_past() + n_tokens <= context(), "a step fits the context");
  APR_CHECK(logits.size() == logit_rows.size() * static_cast<size_t>(vocab_rows), "logits fit");
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_rows) {
      throw Error(ErrorCode::kInvalidFormat, fmt::format("token id {} is not in the vocabulary of "
                                                         "{} rows",
                                                         id, vocab_rows));
    }
  }
  const Op* bad_op = nullptr;
  const Run run = run_stages(ids, logit_rows, cancel, false, &bad_op);
  if (run == Run::kCancelled) {
    return false;
  }
  if (run == Run::kNonFinite) {
    // Nothing was committed: the same step again, looking at every op, finds the first bad one.
    run_stages(ids, logit_rows, nullptr, true, &bad_op);
    throw Error(ErrorCode::kInference,
                fmt::format("non-finite values in {} ({}, layer {}) at positions {} to {}; the "
                            "model file may be damaged",
                            bad_op->name, op_kind_name(bad_op->kind), bad_op->layer_idx, n_past(),
                            n_past() + n_tokens - 1));
  }
  if (!logit_rows.empty()) {
    std::memcpy(logits.data(), value(plan_.logits), logits.size_bytes());
  }
  state_.commit(n_tokens);
  return true;
}

}  // namespace apr::cpu

namespace apr {

constexpr int64_t kDefaultChunk = 512;

std::unique_ptr<Backend> make_cpu_backend(const Model& model, const CpuBackendOptions& options) {
  const ModelDesc& desc = model.desc();
  const auto check_range = [](const char* what, int64_t value, int64_t max) {
    if (value < 0 || value > max) {
      throw Error(ErrorCode::kUsage, fmt::format("{} is {}, expected 0 to {}", what, value, max));
    }
  };
  check_range("the number of threads", options.n_threads, 1024);
  check_range("the context", options.context, desc.context_length);
  check_range("the prefill chunk", options.prefill_chunk, 1 << 16);
  const int64_t context = options.context > 0 ? options.context : desc.context_length;
  const int64_t wanted = options.prefill_chunk > 0 ? options.prefill_chunk : kDefaultChunk;
  return std::make_unique<cpu::CpuBackend>(model, options, context, std::min(wanted, context));
}

}  // namespace apr
