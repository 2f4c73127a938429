#include <fmt/format.h>

#include <cstdlib>

#include "apr/fit.h"

namespace apr {
namespace {

constexpr int kLeastFp8 = 89;  // compute capability with E4M3 products

std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

}  // namespace

FitEnvironment fit_environment() {
  return {variable("BATCHED_PREFILL"), variable("FP8_PREFILL")};
}

bool GpuProfile::disable_fp8_for_qk_norm(std::string_view arch) {
  if (precision == PrefillPrecision::kFp16) {
    return false;
  }
  precision = PrefillPrecision::kFp16;
  refusal = fmt::format(
      "[#3413] FP8_PREFILL=1 is refused: {} has per-head QK-norm, with which FP8 products fail CPU "
      "parity; FP16 is used",
      arch);
  return true;
}

std::string GpuProfile::precision_line() const {
  return fmt::format(
      "[#3785] prefill GEMM precision: {} (cc={}; FP8 is off unless FP8_PREFILL=1, for cc {} and "
      "later and models without QK-norm)",
      precision == PrefillPrecision::kFp8 ? "FP8 (E4M3)" : "FP16", compute_capability, kLeastFp8);
}

GpuProfile gpu_profile(int compute_capability, const FitEnvironment& environment, bool has_qk_norm,
                       std::string_view arch) {
  GpuProfile profile;
  profile.compute_capability = compute_capability;
  if (environment.batched_prefill) {
    profile.batched = *environment.batched_prefill != "0";
    profile.path_reason = profile.batched ? "env forced" : "env=0";
  }
  const std::string fp8 = environment.fp8_prefill.value_or("");
  if (fp8 == "1" && compute_capability >= kLeastFp8) {
    profile.precision = PrefillPrecision::kFp8;
  } else if (fp8 == "1") {
    profile.refusal = fmt::format(
        "FP8_PREFILL=1 is refused: FP8 products need cc {} or later, this card has {}; "
        "FP16 is used",
        kLeastFp8, compute_capability);
  } else if (!fp8.empty() && fp8 != "0") {
    profile.refusal = fmt::format("FP8_PREFILL={} is not 0 or 1; FP16 is used", fp8);
  }
  if (has_qk_norm) {
    profile.disable_fp8_for_qk_norm(arch);
  }
  return profile;
}

}  // namespace apr
