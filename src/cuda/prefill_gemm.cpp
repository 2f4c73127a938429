#include "cuda/prefill_gemm.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "apr/error.h"
#include "apr/lower.h"
#include "base/format.h"
#include "base/log.h"

namespace apr::cuda {
namespace {

constexpr const char* kGemmVariable = "APR_QWEN35_PREFILL_GEMM";
constexpr int64_t kDp4aBlockElems = 256;

}  // namespace

const char* prefill_gemm_name(PrefillGemm gemm) {
  switch (gemm) {
    case PrefillGemm::kF16:
      return "f16";
    case PrefillGemm::kF32:
      return "f32";
    case PrefillGemm::kDp4a:
      return "dp4a";
    case PrefillGemm::kFp8:
      return "fp8";
  }
  check_failed("a prefill gemm has a name", __FILE__, __LINE__, "");
}

bool scales_rows(PrefillGemm gemm) {
  return gemm == PrefillGemm::kF16 || gemm == PrefillGemm::kFp8;
}

ParsedPrefillGemm parse_prefill_gemm(const char* text) {
  const std::string_view found = text == nullptr ? "" : text;
  for (const PrefillGemm gemm : {PrefillGemm::kF16, PrefillGemm::kF32, PrefillGemm::kDp4a}) {
    if (found == prefill_gemm_name(gemm)) {
      return {gemm};
    }
  }
  if (found.empty()) {
    return {};
  }
  return {PrefillGemm::kF16,
          fmt::format("{}={} is not f16, f32 or dp4a; f16 is used", kGemmVariable, found)};
}

PrefillGemm prefill_gemm_from_environment() {
  static const PrefillGemm gemm = [] {
    const ParsedPrefillGemm parsed = parse_prefill_gemm(std::getenv(kGemmVariable));
    if (!parsed.warning.empty()) {
      log_warning(parsed.warning);
    }
    return parsed.gemm;
  }();
  return gemm;
}

GemmChoice choose_prefill_gemm(PrefillGemm requested, bool exact) {
  if (exact && requested != PrefillGemm::kF32) {
    return {PrefillGemm::kF32, "exact mode multiplies in f32"};
  }
  return {requested};
}

GemmChoice choose_gemm(PrefillGemm mode, const Weight& weight, int64_t ldc) {
  if (mode == PrefillGemm::kFp8 && !takes_e4m3(weight)) {
    return {PrefillGemm::kF16, fmt::format("{} is [{}, {}], fp8 takes multiples of {}", weight.name,
                                           weight.n_rows, weight.n_cols, kE4m3Multiple)};
  }
  if (mode != PrefillGemm::kDp4a) {
    return {mode};
  }
  if (weight.type->name != "Q4_K") {
    return {PrefillGemm::kF32,
            fmt::format("{} is {}, dp4a multiplies Q4_K alone", weight.name, weight.type->name)};
  }
  if (weight.n_cols % kDp4aBlockElems != 0) {
    return {PrefillGemm::kF32, fmt::format("{} has {} columns, dp4a takes multiples of {}",
                                           weight.name, weight.n_cols, kDp4aBlockElems)};
  }
  if (ldc != weight.n_rows) {
    return {PrefillGemm::kF32,
            fmt::format("{} has {} rows and results {} apart, dp4a takes them dense", weight.name,
                        weight.n_rows, ldc)};
  }
  return {mode};
}

HalfStoreChoice choose_half_store(uint64_t cache_bytes, uint64_t free_bytes, const char* width) {
  if (free_bytes >= kHalfReserveBytes && cache_bytes <= free_bytes - kHalfReserveBytes) {
    return {};
  }
  return {HalfStore::kStreamed,
          fmt::format("{} weights of {} and 1 GiB do not fit in {} of free device memory", width,
                      format_bytes(cache_bytes), format_bytes(free_bytes))};
}

}  // namespace apr::cuda
