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
  if (gpu->projection() == nullptr) {
    const std::string asked = prefill_gemm_name(gpu->decision().gemm);
    return PrefillGemmFacts{asked, asked, "the prompt goes through the decode step"};
  }
  const PrefillGemmReport& report = gpu->projection()->report();
  return PrefillGemmFacts{prefill_gemm_name(report.requested), prefill_gemm_name(report.ran),
                          report.reason};
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
    const bool wanted_resident = decision.choice.path == PrefillPath::kBatched &&
                                 projection->report().ran == PrefillGemm::kF16;
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

}  // namespace apr::cuda
std::string toolchain() {
  int version = 0;
  static_cast<void>(api().cudaDriverGetVersion(&version));  // leaves 0 where there is no driver
  return fmt::format("NVRTC {}, driver for CUDA {}", nvrtc_version(), cuda_version_text(version));
}

