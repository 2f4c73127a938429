#include "cuda/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/error.h"
#include "cuda/launch_matvec.h"
#include "cuda/nvrtc.h"

namespace apr::cuda {
namespace {

bool all_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
}

bool supported(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
    case OpKind::kRmsNorm:
    case OpKind::kMatmul:
    case OpKind::kSplitHeads:
    case OpKind::kRope:
    case OpKind::kKvAppend:
    case OpKind::kAttention:
    case OpKind::kSigmoidGate:
    case OpKind::kAdd:
    case OpKind::kSwiglu:
    case OpKind::kMoeRoute:
    case OpKind::kMoeFfn:
    case OpKind::kTakeRows:
      return true;
    default:
      return false;
  }
}

CardFacts card_facts(const DeviceFacts& device) {
  const DeviceMemory memory = device_memory();
  return {device.cc_major * 10 + device.cc_minor, device.n_sm, memory.free_bytes,
          memory.total_bytes};
}

// Says once what was decided, as the seed's lines.
void announce(const PrefillDecision& decision) {
  log_note(decision.profile.precision_line());
  if (!decision.profile.refusal.empty()) {
    log_warning(decision.profile.refusal);
  }
  if (!decision.choice.line.empty()) {
    log_note(decision.choice.line);
  }
}

}  // namespace

std::optional<std::string> missing_kernel(const Model& model, const CudaBackendOptions& options) {
  for (const Op& op : build_plan(model).ops) {
    if (!supported(op.kind)) {
      return fmt::format("{} ({}, layer {}) has no GPU kernel yet", op.name, op_kind_name(op.kind),
                         op.layer_idx);
    }
  }
  const auto rows = kernel_table();
  for (const std::string& name :
       attention_kernels(model.desc().attention, needs_f32_cache(options), true)) {
    if (std::none_of(rows.begin(), rows.end(),
                     [&](const KernelRow& row) { return row.name == name; })) {
      return fmt::format("heads of this shape have no GPU kernel yet ({})", name);
    }
  }
  if (auto missing = missing_moe(model.weights())) {
    return missing;
  }
  return missing_dequant(model.weights(), rows);
}

std::unique_ptr<Backend> make_cuda_backend(const Model& model, const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(model, options);
}

std::vector<KernelRow> CudaBackend::needed_rows() const {
  std::set<std::string> types;
  for (const Weight& weight : model_.weights()) {
    if (weight.values.empty()) {
      types.emplace(weight.type->name);
    }
  }
  std::vector<KernelRow> rows;
  const std::vector<std::string> attention =
      attention_kernels(model_.desc().attention, f32_cache(), device_.cc_major >= 8);
  const std::vector<std::string> moe = moe_kernels(model_.weights(), options_.exact, device_);
  for (const KernelRow& row : kernel_table()) {
    const auto is_other = [&](std::string_view type) {
      return !type.empty() && !types.contains(std::string(type));
    };
    const bool other_type = is_other(row.quant_type) || is_other(row.second_type);
    const bool is_attention =
        row.name.starts_with("attention_") || row.name.starts_with("qk_rope_append.");
    const bool other_attention =
        is_attention && std::find(attention.begin(), attention.end(), row.name) == attention.end();
    const bool other_experts =
        row.name.starts_with("moe_") && std::find(moe.begin(), moe.end(), row.name) == moe.end();
    // Blocks lie as planes here; only plain types are raw.
    const bool other_layout = row.name.find(".raw.") != std::string_view::npos &&
                              has_planes(*find_quant_type(row.quant_type));
    const bool has_few_rows =
        scales_rows(decision_.gemm) && decision_.choice.path != PrefillPath::kSerial;
    const bool other_gemm =
        (row.name.ends_with(".e4m3") && decision_.gemm != PrefillGemm::kFp8) ||
        ((row.name.starts_with("small_gemm.") || row.name.starts_with("matvec_rows.")) &&
         !has_few_rows);
    if (runs_on(row, device_.architecture) && !other_type && !other_attention && !other_experts &&
        !other_layout && !other_gemm) {
      rows.push_back(row);
    }
  }
  return rows;
}

CudaBackend::CudaBackend(const Model& model, const CudaBackendOptions& options)
    : model_(model),
      options_(options),
      device_(use_device(options.device)),
      context_(options.context > 0 ? options.context : model.desc().context_length),
      plan_(build_plan(model)),
      decision_(decide_prefill(plan_, options, fit_environment(), card_facts(device_))),
      prefill_(lower(
          plan_, prefill_target(options, decision_.gemm, decision_.choice.path, decision_.chunk))),
      decode_(lower(plan_, decode_target())),
      stream_(create_stream()) {
  const ModelDesc& desc = model.desc();
  if (const auto missing = missing_kernel(model, options)) {
    throw Error(ErrorCode::kBackendUnavailable, *missing);
  }
  if (!decision_.refusal.empty()) {
    throw Error(ErrorCode::kBackendUnavailable, decision_.refusal);
  }
  announce(decision_);
  KernelCompiler compiler;
  const std::vector<KernelRow> rows = needed_rows();
  kernels_ = std::make_unique<KernelLibrary>(
      compiler, rows, device_.architecture,
      static_cast<int64_t>(device_.shared_bytes_per_block) - kStaticSharedBytes);
  weights_ = std::make_unique<DeviceWeights>(model.weights());

  workspace_ =
      DeviceBuffer(static_cast<size_t>(std::max(prefill_.workspace_bytes, decode_.workspace_bytes)),
                   "intermediate results");
  step_state_ = DeviceBuffer(step_state_bytes(max_rows()), "step state");
  host_step_ = PinnedBuffer(step_state_.size_bytes(), "step state");
  host_logits_ =
      PinnedBuffer(static_cast<size_t>(max_logit_rows() * desc.vocab_rows * 4), "logits");
  attention_ =
      std::make_unique<Attention>(*kernels_, stream_, device_, desc, step_state_.as<StepState>(),
                                  AttentionOptions{f32_cache(), max_rows(), context_});
  if (const int64_t n_tokens = std::min(desc.n_tokens, desc.vocab_rows);
      n_tokens <= kMostSampleTokens) {
    sampler_ = std::make_unique<DeviceSampler>(
        *kernels_, stream_, n_tokens, context_, step_state_.as<StepState>(),
        reinterpret_cast<int32_t*>(step_state_.data() + sizeof(StepState)));
  }
  for (Event& event : step_done_) {
    event = create_event();
  }
  if (desc.moe.n_experts > 0) {
    moe_ = std::make_unique<Moe>(*kernels_, stream_, device_, *weights_, model.weights(), desc.moe,
                                 Moe::Options{options.exact, max_rows()});
  }
  const int64_t position_bytes = cache_row_bytes(desc, f32_cache());
  for (const StateSpec& state : plan_.states) {
    APR_CHECK(state.kind == StateKind::kKvCache, "dense models have caches alone");
    const size_t reserve_bytes = static_cast<size_t>(context_ * position_bytes);
    k_cache_.emplace_back(reserve_bytes, options.device, "keys");
    v_cache_.emplace_back(reserve_bytes, options.device, "values");
  }
  if (decision_.choice.path == PrefillPath::kSerial) {
    return;  // every step is a decode step
  }
  // Last: its 16-bit weights take what memory is left when the whole cache is mapped.
  uint64_t unmapped_bytes = 0;
  for (const std::vector<VirtualRange>* ranges : {&k_cache_, &v_cache_}) {
    for (const VirtualRange& range : *ranges) {
      unmapped_bytes += range.reserved_bytes() - range.mapped_bytes();
    }
  }
  const bool is_fp8 = decision_.gemm == PrefillGemm::kFp8;
  Projection::Options projection{is_fp8 ? PrefillGemm::kFp8 : requested_gemm(options),
                                 options.exact, max_rows(), unmapped_bytes};
  projection.few_tokens =
      options.few_tokens_always ? FewTokensUse::kWherePossible : FewTokensUse::kWhereFaster;
  if (decision_.choice.path == PrefillPath::kStreamed) {
    projection.store = {HalfStore::kStreamed, decision_.choice.reason};
  }
  projection_ = std::make_unique<Projection>(*kernels_, stream_, device_, *weights_,
                                             projection_groups(prefill_), projection);
}

bool CudaBackend::f32_cache() const {
  return needs_f32_cache(options_);
}

std::string CudaBackend::device_name() const {
  return fmt::format("{} ({})", device_.name, device_.architecture);
}

void CudaBackend::undo_last() {
  end_decode();
  APR_CHECK(last_n_tokens_ > 0, "one step can be taken back once");
  n_past_ -= std::exchange(last_n_tokens_, 0);
}

void CudaBackend::reset() {
  end_decode();
  n_past_ = last_n_tokens_ = 0;
}

float* CudaBackend::value(const Step& step, ValueId id) const {
  const int64_t offset = step.exec->value_offset_bytes[static_cast<size_t>(id)];
  APR_CHECK(offset >= 0, plan_.values[static_cast<size_t>(id)].name);
  return reinterpret_cast<float*>(workspace_.data() + offset);
}

int64_t CudaBackend::rows_of(const Step& step, ValueId id) const {
  return plan_.values[static_cast<size_t>(id)].rows == RowDomain::kTokens
             ? step.n_tokens
             : static_cast<int64_t>(step.logit_rows.size());
}

void CudaBackend::launch_stages(const Step& step) {
  for (const Stage& stage : step.exec->stages) {
    launch_stage(step, stage);
    if (observer_ != nullptr) {
      APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
      ObservedStep values(*this, step);
      observer_->after_stage(*step.exec, stage, values);
    }
  }
}

void CudaBackend::grow_caches(int64_t n_positions) {
  const int64_t position_bytes = cache_row_bytes(desc(), f32_cache());
  for (size_t state = 0; state < k_cache_.size(); ++state) {
    k_cache_[state].grow(static_cast<size_t>(n_positions * position_bytes));
    v_cache_[state].grow(static_cast<size_t>(n_positions * position_bytes));
  }
}

bool CudaBackend::forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
                          std::span<float> logits, const std::atomic<bool>* cancel) {
  const int64_t n_tokens = static_cast<int64_t>(ids.size());
  const int64_t vocab_rows = desc().vocab_rows;
  APR_CHECK(n_tokens >= 1 && n_tokens <= max_rows(), "a step has 1 to max_rows ids");
  APR_CHECK(static_cast<int64_t>(logit_rows.size()) <= max_logit_rows(), "logit rows fit");
  APR_CHECK(n_past_ + n_tokens <= context_, "a step fits the context");
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_rows) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("token id {} is not in the vocabulary of {} rows", id, vocab_rows));
    }
  }
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
    return false;
  }
  end_decode();
  grow_caches(n_past_ + n_tokens);
  *host_step_.as<StepState>() = {static_cast<int32_t>(n_past_), static_cast<int32_t>(n_tokens)};
  std::memcpy(host_step_.data() + sizeof(StepState), ids.data(), ids.size_bytes());
  APR_CUDA(api().cudaMemcpyAsync(step_state_.data(), host_step_.data(),
                                 sizeof(StepState) + ids.size_bytes(), cudaMemcpyHostToDevice,
                                 stream_.get()));
  const std::vector<int64_t> row_zero = {0};
  const Step step =
      n_tokens == 1 ? Step{&decode_, 1, row_zero} : Step{&prefill_, n_tokens, logit_rows};
  if (n_tokens == 1 && observer_ == nullptr) {
    replay_decode(0);
  } else if (has_prefill_graph(step)) {
    replay_prefill(step);
  } else {
    launch_stages(step);
  }
  if (!logit_rows.empty()) {
    APR_CUDA(api().cudaMemcpyAsync(host_logits_.data(), value(step, plan_.logits),
                                   logits.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
  }
  APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
  if (!logit_rows.empty()) {
    std::memcpy(logits.data(), host_logits_.data(), logits.size_bytes());
    if (!all_finite(logits)) {
      throw Error(
          ErrorCode::kInference,
          fmt::format("non-finite logits at position {} on the GPU; try --exact or --no-gpu",
                      n_past_ + n_tokens - 1));
    }
  }
  n_past_ += n_tokens;
  last_n_tokens_ = n_tokens;
  return true;
}

}  // namespace apr::cuda
