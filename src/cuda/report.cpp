// What a backend says of itself through apr/cuda.h.
#include <fmt/format.h>

#include "apr/cuda.h"
#include "cuda/backend.h"
#include "cuda/driver_failure.h"
#include "cuda/error.h"
#include "cuda/memory_plan.h"
#include "cuda/nvrtc.h"
#include "cuda/prefill_gemm.h"

namespace apr::cuda {

std::optional<PrefillGemmFacts> prefill_gemm_facts(const Backend& backend) {
  const auto* gpu = dynamic_cast<const CudaBackend*>(&backend);
  if (gpu == nullptr) {
    return std::nullopt;
  }
  const PrefillDecision& decision = gpu->decision();
  const char* requested = prefill_gemm_name(decision.requested);
  if (gpu->projection() == nullptr) {
    return PrefillGemmFacts{requested, prefill_gemm_name(decision.gemm),
                            "the prompt goes through the decode step"};
  }
  const PrefillGemmReport& report = gpu->projection()->report();
  std::string reason = decision.gemm_reason;
  if (reason.find(report.reason) == std::string::npos) {
    reason += (reason.empty() ? "" : "; ") + report.reason;
  }
  return PrefillGemmFacts{requested, prefill_gemm_name(report.ran), reason, report.tier};
}

std::optional<PrefillFacts> prefill_facts(const Backend& backend) {
  const auto* gpu = dynamic_cast<const CudaBackend*>(&backend);
  if (gpu == nullptr) {
    return std::nullopt;
  }
  const PrefillDecision& decision = gpu->decision();
  PrefillFacts facts;
  facts.path = prefill_path_name(decision.choice.path);
  facts.reason = decision.choice.reason;
  facts.precision = "decode";  // what a step's products are, one row at a time
  if (const Projection* projection = gpu->projection()) {
    facts.precision = prefill_gemm_name(projection->report().ran);
    const bool wanted_resident =
        decision.choice.path == PrefillPath::kBatched && scales_rows(projection->report().ran);
    if (wanted_resident && projection->half_store() == HalfStore::kStreamed) {
      facts.path = prefill_path_name(PrefillPath::kStreamed);
      facts.reason = projection->report().reason;
    }
  }
  facts.need_bytes = decision.need.total_bytes();
  facts.free_bytes = decision.free_bytes;
  facts.planned_bytes = decision.memory.planned_bytes();
  facts.chunk = gpu->max_rows();
  return facts;
}

std::string toolchain() {
  int version = 0;
  static_cast<void>(api().cudaDriverGetVersion(&version));  // leaves 0 where there is no driver
  // A serial prefill does without cuBLAS.
  const bool has_cublas = api().library(Library::kCublas).loaded;
  return fmt::format("NVRTC {}, cuBLAS {}, driver for CUDA {}", nvrtc_version(),
                     has_cublas ? cublas_version() : "none", cuda_version_text(version));
}

}  // namespace apr::cuda
