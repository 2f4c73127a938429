#include "cuda/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/format.h"
#include "cuda/moe_sizes.h"
#include "cuda/planes.h"
#include "cuda/prefill_attention.h"
#include "cuda/projection_groups.h"
#include "cuda/sampler_settings.h"

namespace apr::cuda {
namespace {

constexpr int64_t kChunks[] = {2048, 512, 128};  // by default the largest with room

uint64_t rounded(uint64_t n_bytes, uint64_t unit) {
  return (n_bytes + unit - 1) / unit * unit;
}

int64_t context_of(const Plan& plan, const CudaBackendOptions& options) {
  return options.context > 0 ? options.context : plan.model->desc().context_length;
}

std::vector<int64_t> chunks_of(const CudaBackendOptions& options, int64_t context) {
  if (options.prefill_chunk > 0) {
    return {std::min(options.prefill_chunk, context)};
  }
  std::vector<int64_t> chunks;
  for (const int64_t chunk : kChunks) {
    if (chunks.empty() || chunk < chunks.back()) {
      chunks.push_back(std::min(chunk, context));
    }
  }
  return chunks;
}

void add_projection(MemoryPlan& memory, const ExecPlan& prefill, PrefillGemm gemm,
                    PrefillPath path) {
  const std::vector<ProjectionGroup> groups = projection_groups(prefill);
  const bool kept = scales_rows(gemm) && path == PrefillPath::kBatched;
  if (kept) {
    for (const uint64_t n_bytes : half_places(groups).layer_bytes) {
      memory.add(MemoryUse::kHalfWeights, n_bytes);
    }
  }
  memory.add(MemoryUse::kLibraries, kCublasOwnBytes);
  const ProjectionSizes sizes =
      projection_sizes(groups, gemm, kept, prefill.target.max_rows, kMostWeightScratchBytes);
  for (const uint64_t n_bytes : {kCublasBytes, sizes.largest, sizes.weight_scratch, sizes.x,
                                 sizes.undo, sizes.products, sizes.q8_scale, sizes.q8_sum}) {
    memory.add(MemoryUse::kWorkspace, n_bytes);
  }
}

// The profile and the products; FP8 stands in for f16 alone.
void decide_gemm(PrefillDecision& decision, const CudaBackendOptions& options,
                 FitEnvironment environment, const CardFacts& card, const ModelDesc& desc) {
  if (options.prefill_gemm == PrefillGemm::kFp8) {
    environment.fp8_prefill.emplace("1");
  }
  if (options.fp8_prefill_off) {
    environment.fp8_prefill.reset();
  }
  GpuProfile& profile = decision.profile;
  profile = gpu_profile(card.compute_capability, environment, desc.attention.qk_norm, desc.arch);
  const GemmChoice without = choose_prefill_gemm(requested_gemm(options), options.exact);
  if (profile.precision == PrefillPrecision::kFp8 && without.ran != PrefillGemm::kF16) {
    profile.precision = PrefillPrecision::kFp16;
    profile.refusal = fmt::format(
        "FP8_PREFILL=1 is refused: {}",
        options.exact ? without.reason
                      : fmt::format("{} products were asked for", prefill_gemm_name(without.ran)));
  }
  const bool is_fp8 = profile.precision == PrefillPrecision::kFp8;
  const bool fp8_refused = environment.fp8_prefill == "1" && !is_fp8;
  decision.gemm = is_fp8 ? PrefillGemm::kFp8 : without.ran;
  decision.requested = is_fp8 || fp8_refused ? PrefillGemm::kFp8 : requested_gemm(options);
  decision.gemm_reason = fp8_refused ? profile.refusal : "";
}

std::string refusal_of(const MemoryPlan& memory, const CardFacts& card, uint64_t free_bytes) {
  const uint64_t planned_bytes = memory.planned_bytes();
  return fmt::format(
      "the model needs {} of GPU memory (weights {}, KV {}, states {}, workspace {}) and {} is "
      "free{}; a smaller --context takes less",
      format_bytes(planned_bytes), format_bytes(memory.bytes(MemoryUse::kWeights)),
      format_bytes(memory.bytes(MemoryUse::kKv)), format_bytes(memory.bytes(MemoryUse::kStates)),
      format_bytes(memory.bytes(MemoryUse::kWorkspace)), format_bytes(free_bytes),
      planned_bytes <= card.total_bytes
          ? fmt::format(" of {}: the rest is in use", format_bytes(card.total_bytes))
          : "");
}

}  // namespace

void MemoryPlan::add(MemoryUse use, uint64_t n_bytes) {
  if (n_bytes > 0) {
    allocations.push_back({use, n_bytes});
  }
}

uint64_t MemoryPlan::bytes(MemoryUse use) const {
  uint64_t total = 0;
  for (const Allocation& allocation : allocations) {
    total += allocation.use == use ? allocation.n_bytes : 0;
  }
  return total;
}

uint64_t MemoryPlan::asked_bytes() const {
  uint64_t total = 0;
  for (const Allocation& allocation : allocations) {
    total += allocation.use == MemoryUse::kLibraries ? 0 : allocation.n_bytes;
  }
  return total;
}

uint64_t MemoryPlan::planned_bytes() const {
  constexpr uint64_t kSmallBytes = uint64_t{1} << 20, kSmallUnit = 512;
  uint64_t large_bytes = 0, small_bytes = 0;
  for (const auto& [use, n_bytes] : allocations) {
    (n_bytes < kSmallBytes ? small_bytes : large_bytes) +=
        rounded(n_bytes, n_bytes < kSmallBytes ? kSmallUnit : kDevicePageBytes);
  }
  return large_bytes + rounded(small_bytes, kDevicePageBytes);
}

PrefillGemm requested_gemm(const CudaBackendOptions& options) {
  if (options.prefill_gemm == PrefillGemm::kFp8) {
    return PrefillGemm::kF16;  // in whose place it stands
  }
  return options.prefill_gemm ? *options.prefill_gemm : prefill_gemm_from_environment();
}

bool needs_f32_cache(const CudaBackendOptions& options) {
  const PrefillAttention mode =
      options.prefill_attention ? *options.prefill_attention : prefill_attention_from_environment();
  return options.exact || mode == PrefillAttention::kF32;
}

int64_t cache_row_bytes(const ModelDesc& desc, bool f32_cache) {
  return desc.attention.kv_dim() * (f32_cache ? 4 : 2);
}

uint64_t step_state_bytes(int64_t max_rows) {
  return sizeof(StepState) + static_cast<uint64_t>(max_rows) * sizeof(int32_t);
}

Target prefill_target(const CudaBackendOptions& options, PrefillGemm gemm, PrefillPath path,
                      int64_t chunk) {
  const bool serial = path == PrefillPath::kSerial;
  return {.backend = BackendKind::kCuda,
          .phase = Phase::kPrefill,
          .max_rows = serial ? 1 : chunk,
          .max_logit_rows = serial ? 1 : options.max_logit_rows,
          .f16_rows = scales_rows(gemm),
          .e4m3_rows = gemm == PrefillGemm::kFp8};
}

Target decode_target() {
  return {
      .backend = BackendKind::kCuda, .phase = Phase::kDecode, .max_rows = 1, .max_logit_rows = 1};
}

MemoryPlan memory_plan(const Plan& plan, const CudaBackendOptions& options, PrefillGemm gemm,
                       const CardFacts& card, PrefillPath path, int64_t chunk) {
  const Model& model = *plan.model;
  const ModelDesc& desc = model.desc();
  const int64_t context = context_of(plan, options);
  const bool f32_cache = needs_f32_cache(options);
  const ExecPlan prefill = lower(plan, prefill_target(options, gemm, path, chunk));
  const ExecPlan decode = lower(plan, decode_target());

  MemoryPlan memory;
  memory.add(MemoryUse::kWeights,
             static_cast<uint64_t>(weight_places(model.weights()).total_bytes));
  for (const StateSpec& state : plan.states) {
    if (state.kind == StateKind::kKvCache) {
      const auto n_bytes = static_cast<uint64_t>(context * cache_row_bytes(desc, f32_cache));
      memory.add(MemoryUse::kKv, rounded(n_bytes, kDevicePageBytes));
      memory.add(MemoryUse::kKv, rounded(n_bytes, kDevicePageBytes));
    } else {
      memory.add(MemoryUse::kStates, 2 * sizeof(float) * static_cast<uint64_t>(state.elems));
    }
  }
  memory.add(MemoryUse::kWorkspace,
             static_cast<uint64_t>(std::max(prefill.workspace_bytes, decode.workspace_bytes)));
  memory.add(MemoryUse::kWorkspace, step_state_bytes(prefill.target.max_rows));
  const AttentionSizes attention = attention_sizes(desc, card.n_sm, card.compute_capability >= 80,
                                                   {f32_cache, prefill.target.max_rows, context});
  for (const uint64_t n_bytes : {attention.frequencies, attention.counters, attention.partial,
                                 attention.stats, attention.scores}) {
    memory.add(MemoryUse::kWorkspace, n_bytes);
  }
  if (const int64_t n_tokens = std::min(desc.n_tokens, desc.vocab_rows);
      n_tokens <= kMostSampleTokens) {
    const SamplerSizes sampler = sampler_sizes(n_tokens, context);
    for (const uint64_t n_bytes :
         {sampler.answer, sampler.history, sampler.counts, sampler.partials, sampler.histogram}) {
      memory.add(MemoryUse::kWorkspace, n_bytes);
    }
  }
  const MoeSizes moe = moe_sizes(model.weights(), desc.moe, options.exact,
                                 card.compute_capability >= 80, prefill.target.max_rows);
  for (const uint64_t n_bytes :
       {moe.routers, moe.largest, moe.logits, moe.arrived, moe.pairs, moe.first, moe.tiles,
        moe.n_tiles, moe.hidden, moe.parts, moe.halves, moe.undo}) {
    memory.add(MemoryUse::kWorkspace, n_bytes);
  }
  if (path != PrefillPath::kSerial) {
    add_projection(memory, prefill, gemm, path);
  }
  return memory;
}

PrefillDecision decide_prefill(const Plan& plan, const CudaBackendOptions& options,
                               const FitEnvironment& environment, const CardFacts& card) {
  const ModelDesc& desc = plan.model->desc();
  const int64_t context = context_of(plan, options);
  const std::vector<int64_t> chunks = chunks_of(options, context);
  PrefillDecision decision;
  decision.free_bytes = visible_free_bytes(options, card.free_bytes);
  decide_gemm(decision, options, environment, card, desc);
  const auto plan_of = [&](PrefillPath path, int64_t chunk) {
    return memory_plan(plan, options, decision.gemm, card, path, chunk);
  };
  const bool scaled = scales_rows(decision.gemm);
  const uint64_t cache_elem_bytes = decision.gemm == PrefillGemm::kFp8   ? 1
                                    : decision.gemm == PrefillGemm::kF16 ? 2
                                                                         : 0;
  decision.need = prefill_need(resident_estimate(*plan.model, needs_f32_cache(options) ? 4 : 2),
                               cache_elem_bytes, context);
  PrefillCase of;
  of.requested = options.prefill_path;
  of.environment = environment;
  of.batched_by_profile = decision.profile.batched;
  of.has_qk_norm = desc.attention.qk_norm && scaled;  // the seed's rule is of the FP16 prefill
  of.need_bytes = decision.need.total_bytes();
  of.free_bytes = decision.free_bytes;
  of.batched_bytes = plan_of(PrefillPath::kBatched, chunks.back()).planned_bytes() +
                     (scaled ? kHalfReserveBytes : 0);
  of.streamed_bytes = plan_of(PrefillPath::kStreamed, chunks.back()).planned_bytes();
  decision.choice = choose_prefill(of);

  if (decision.choice.path == PrefillPath::kSerial) {
    decision.memory = plan_of(PrefillPath::kSerial, 1);
  } else {
    for (const int64_t chunk : chunks) {
      decision.chunk = chunk;
      decision.memory = plan_of(decision.choice.path, chunk);
      if (decision.memory.planned_bytes() <= decision.free_bytes) {
        break;
      }
    }
  }
  if (!decision.choice.is_forced && decision.memory.planned_bytes() > decision.free_bytes) {
    decision.refusal = refusal_of(decision.memory, card, decision.free_bytes);
  }
  return decision;
}

uint64_t visible_free_bytes(const CudaBackendOptions& options, uint64_t free_bytes) {
  return options.vram_bytes == 0 ? free_bytes
                                 : std::min(free_bytes, free_bytes_of_card(options.vram_bytes));
}

int64_t largest_context(const Plan& plan, CudaBackendOptions options,
                        const FitEnvironment& environment, const CardFacts& card) {
  int64_t fitting = 0, above = plan.model->desc().context_length + 1;
  while (above - fitting > 1) {
    options.context = fitting + (above - fitting) / 2;
    const PrefillDecision decision = decide_prefill(plan, options, environment, card);
    (decision.memory.planned_bytes() <= decision.free_bytes ? fitting : above) = options.context;
  }
  return fitting;
}

}  // namespace apr::cuda
