// What a backend says of itself through apr/cuda.h.
#include "apr/cuda.h"
#include "cuda/backend.h"
#include "cuda/prefill_gemm.h"

namespace apr::cuda {

std::optional<PrefillGemmFacts> prefill_gemm_facts(const Backend& backend) {
  const auto* gpu = dynamic_cast<const CudaBackend*>(&backend);
  if (gpu == nullptr) {
    return std::nullopt;
  }
  const PrefillGemmReport& report = gpu->projection().report();
  return PrefillGemmFacts{prefill_gemm_name(report.requested), prefill_gemm_name(report.ran),
                          report.reason};
}

}  // namespace apr::cuda
