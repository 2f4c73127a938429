// What the backend allocates for a model on a card, and which prefill that leaves room for: plain
// host code, which needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apr/cuda.h"
#include "apr/fit.h"
#include "apr/lower.h"
#include "apr/plan.h"
#include "cuda/prefill_gemm.h"

namespace apr::cuda {

// What memory is for.
enum class MemoryUse {
  kWeights,      // as the file has them, packed anew
  kHalfWeights,  // 16- or 8-bit copies kept for the prefill
  kKv,           // keys and values of the whole context
  kStates,       // of recurrent layers, doubled: of this step and the one before
  kWorkspace,    // intermediate results and scratch
  kLibraries,    // what cuBLAS takes for itself
};

struct MemoryPlan {
  struct Allocation {
    MemoryUse use;
    uint64_t n_bytes;
  };
  std::vector<Allocation> allocations;  // none of zero bytes

  void add(MemoryUse use, uint64_t n_bytes);
  uint64_t bytes(MemoryUse use) const;
  uint64_t asked_bytes() const;  // by us: without the libraries' own
  // Rounded as the driver does: to 512 bytes; from 1 MiB on to whole pages of 2 MiB.
  uint64_t planned_bytes() const;
};

// A card as the plan sees it.
struct CardFacts {
  int compute_capability = 89, n_sm = 128;  // of the card of the seed's cases
  uint64_t free_bytes = 0;                  // with nothing of ours on it
  uint64_t total_bytes = 0;
};

constexpr uint64_t kDevicePageBytes = uint64_t{2} << 20;  // of what is mapped as it grows

// Without FP8_PREFILL: of the options, else of APR_QWEN35_PREFILL_GEMM.
PrefillGemm requested_gemm(const CudaBackendOptions& options);
bool needs_f32_cache(const CudaBackendOptions& options);  // exact attention is f32, as its cache

// Bytes of the keys, or the values, of one position of one layer.
int64_t cache_row_bytes(const ModelDesc& desc, bool f32_cache);

// Of the memory that a step is described in: StepState and its token ids.
uint64_t step_state_bytes(int64_t max_rows);

// What the prefill of a path is lowered for; `gemm`: its products.
Target prefill_target(const CudaBackendOptions& options, PrefillGemm gemm, PrefillPath path,
                      int64_t chunk);
Target decode_target();

// What CudaBackend allocates when the whole context is mapped; `gemm`: PrefillDecision::gemm.
MemoryPlan memory_plan(const Plan& plan, const CudaBackendOptions& options, PrefillGemm gemm,
                       const CardFacts& card, PrefillPath path, int64_t chunk);

struct PrefillDecision {
  GpuProfile profile;
  PrefillNeed need;  // the seed's sum
  PrefillChoice choice;
  PrefillGemm requested = PrefillGemm::kF16;  // with FP8_PREFILL, also where that is refused
  PrefillGemm gemm = PrefillGemm::kF16;       // of the prefill as a whole
  std::string gemm_reason = {};               // why FP8_PREFILL=1 is not followed; else empty
  int64_t chunk = 1;                          // rows of a forward
  uint64_t free_bytes = 0;
  MemoryPlan memory;         // of the path
  std::string refusal = {};  // why not even that fits; empty: it does, or was forced
};

// The decision for a model on a card; options.context 0 means the model's.
PrefillDecision decide_prefill(const Plan& plan, const CudaBackendOptions& options,
                               const FitEnvironment& environment, const CardFacts& card);

// The free memory that a decision sees: what is free, or less where options.vram_bytes says so.
uint64_t visible_free_bytes(const CudaBackendOptions& options, uint64_t free_bytes);

// The largest context, at most the model's, with which `options` find room; 0: none.
int64_t largest_context(const Plan& plan, CudaBackendOptions options,
                        const FitEnvironment& environment, const CardFacts& card);

}  // namespace apr::cuda
