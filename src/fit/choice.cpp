#include <fmt/format.h>

#include <array>

#include "apr/error.h"
#include "apr/fit.h"
#include "fit/fault_points.h"

namespace apr {
namespace {

constexpr std::array kPaths{PrefillPath::kBatched, PrefillPath::kStreamed, PrefillPath::kSerial};

std::string gigabytes(uint64_t n_bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(n_bytes) / 1e9);
}

bool fits(uint64_t need_bytes, uint64_t free_bytes) {
  return planted(FitFault::kAtLeast) ? need_bytes < free_bytes : need_bytes <= free_bytes;
}

// The seed's line, with the path that is taken.
std::string does_not_fit_line(uint64_t need_bytes, uint64_t free_bytes, PrefillPath path) {
  return fmt::format(
      "[#3715] {} prefill: the FP16 batched prefill needs {} and {} is free (BATCHED_PREFILL=1 "
      "overrides)",
      prefill_path_name(path), gigabytes(need_bytes), gigabytes(free_bytes));
}

}  // namespace

const char* prefill_path_name(PrefillPath path) {
  switch (path) {
    case PrefillPath::kBatched:
      return "batched";
    case PrefillPath::kStreamed:
      return "streamed";
    case PrefillPath::kSerial:
      return "serial";
  }
  check_failed("a prefill path has a name", __FILE__, __LINE__, "");
}

std::optional<PrefillPath> find_prefill_path(std::string_view name) {
  for (const PrefillPath path : kPaths) {
    if (name == prefill_path_name(path)) {
      return path;
    }
  }
  return std::nullopt;
}

bool serial_when_fp16_prefill_does_not_fit(bool has_qk_norm, const FitEnvironment& environment,
                                           uint64_t need_bytes, uint64_t free_bytes) {
  return has_qk_norm && !environment.batched_prefill && !fits(need_bytes, free_bytes);
}

PrefillChoice choose_prefill(const PrefillCase& of) {
  if (of.requested) {
    return {*of.requested, fmt::format("--prefill {}", prefill_path_name(*of.requested)), true};
  }
  if (of.environment.batched_prefill) {
    return {of.batched_by_profile ? PrefillPath::kBatched : PrefillPath::kSerial,
            fmt::format("BATCHED_PREFILL={}", *of.environment.batched_prefill), true};
  }
  const bool refused_by_seed = serial_when_fp16_prefill_does_not_fit(of.has_qk_norm, of.environment,
                                                                     of.need_bytes, of.free_bytes);
  // A model without QK-norm would batch whatever it needs; what it allocates must fit all the same.
  const uint64_t asked_bytes = of.has_qk_norm ? of.need_bytes : of.batched_bytes;
  if (!refused_by_seed && fits(of.batched_bytes, of.free_bytes)) {
    return {PrefillPath::kBatched,
            fmt::format("fits: {} of {} free", gigabytes(asked_bytes), gigabytes(of.free_bytes))};
  }
  const uint64_t failed_bytes = refused_by_seed ? of.need_bytes : of.batched_bytes;
  const PrefillPath path =
      fits(of.streamed_bytes, of.free_bytes) ? PrefillPath::kStreamed : PrefillPath::kSerial;
  return {path,
          fmt::format("the batched prefill with resident weights needs {} and {} is free",
                      gigabytes(failed_bytes), gigabytes(of.free_bytes)),
          false, does_not_fit_line(failed_bytes, of.free_bytes, path)};
}

uint64_t free_bytes_of_card(uint64_t vram_bytes) {
  constexpr uint64_t kTakenBytes = uint64_t{1276} << 20;
  return vram_bytes > kTakenBytes ? vram_bytes - kTakenBytes : 0;
}

}  // namespace apr
