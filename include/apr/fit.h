// Whether a model fits a GPU, and which prefill it gets: pure functions of the model, the card and
// the environment. Names and rules are those of the seed documents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "apr/model.h"

namespace apr {

// Variables as they are set; none: not set.
struct FitEnvironment {
  std::optional<std::string> batched_prefill = {};  // BATCHED_PREFILL
  std::optional<std::string> fp8_prefill = {};      // FP8_PREFILL
};

// Those of this process.
FitEnvironment fit_environment();

enum class PrefillPrecision { kFp16, kFp8 };

// Which prefill a card and an environment ask for, before anybody looks at memory.
struct GpuProfile {
  int compute_capability = 0;  // major * 10 + minor
  bool batched = true;
  std::string_view path_reason = "default";  // "env=0", "env forced", "default"
  PrefillPrecision precision = PrefillPrecision::kFp16;
  std::string refusal = {};  // why FP8_PREFILL is not followed, one line; empty: it is

  // FP8 products fail parity on models with per-head QK-norm: turns them off, path as it was.
  // `arch` names the model in the refusal. Answers whether that changed anything.
  bool disable_fp8_for_qk_norm(std::string_view arch);

  // "[#3785] prefill GEMM precision: FP16 (...)", what holds and how to change it.
  std::string precision_line() const;
};

// The profile of a card for a model. FP8 is off unless FP8_PREFILL=1, which a model with QK-norm
// and a card before 8.9 are refused.
GpuProfile gpu_profile(int compute_capability, const FitEnvironment& environment, bool has_qk_norm,
                       std::string_view arch);

// What a model's projections take, read from its tensors.
struct ResidentEstimate {
  int64_t n_matrices = 0;      // a stack of experts counts once
  uint64_t weights_bytes = 0;  // as stored in the file
  uint64_t n_elems = 0;        // of all experts
  uint64_t kv_bytes_per_position = 0;
};

// Walks the matrices that activations are multiplied with: of attention, recurrence, feed-forward
// (every expert, the router) and the output matrix once, also where it is the embedding. Embedding,
// norms, biases and the conv kernel are not counted. kv_elem_bytes: 2 of an f16 cache.
ResidentEstimate resident_estimate(const Model& model, uint64_t kv_elem_bytes);

// 3.5e9 bytes of prefill buffers and 1 GiB of attention scores.
constexpr uint64_t kPrefillReserveBytes = 3'500'000'000 + (uint64_t{1} << 30);

// Bytes the FP16 batched prefill is taken to need, by term.
struct PrefillNeed {
  uint64_t weights_bytes = 0, cache_bytes = 0, kv_bytes = 0, reserve_bytes = 0;
  uint64_t total_bytes() const;  // saturates
};

// cache_elem_bytes: of a weight in the resident cache: 2 (FP16), 1 (FP8), 0 (none).
PrefillNeed prefill_need(const ResidentEstimate& estimate, uint64_t cache_elem_bytes,
                         int64_t n_positions);

// The seed's decision: a QK-norm model leaves the batched prefill where it needs more than is free
// (need == free fits), unless BATCHED_PREFILL is set.
bool serial_when_fp16_prefill_does_not_fit(bool has_qk_norm, const FitEnvironment& environment,
                                           uint64_t need_bytes, uint64_t free_bytes);

// How a prompt goes through the model on a GPU.
enum class PrefillPath {
  kBatched,   // chunks of many rows, 16-bit weights resident
  kStreamed,  // chunks of many rows, 16-bit weights made again for each product
  kSerial,    // a token at a time, through the decode step
};
const char* prefill_path_name(PrefillPath path);                      // "batched"
std::optional<PrefillPath> find_prefill_path(std::string_view name);  // none: no such name

// What the choice of a path depends on.
struct PrefillCase {
  std::optional<PrefillPath> requested = {};  // --prefill; none: auto
  FitEnvironment environment = {};
  bool batched_by_profile = true;  // GpuProfile::batched
  bool has_qk_norm = false;
  uint64_t need_bytes = 0;     // PrefillNeed
  uint64_t free_bytes = 0;     // before anything is allocated
  uint64_t batched_bytes = 0;  // what each path would allocate
  uint64_t streamed_bytes = 0;
};

struct PrefillChoice {
  PrefillPath path = PrefillPath::kBatched;
  std::string reason = {};
  bool is_forced = false;  // by a flag or a variable: memory was not asked
  std::string line = {};   // "[#3715] ..." where memory decided against batched; else empty
};

// --prefill, then BATCHED_PREFILL, then memory: batched where its need fits, else streamed where
// its allocations fit, else serial.
PrefillChoice choose_prefill(const PrefillCase& of);

// Memory of a card of `vram_bytes` that is free with nothing else on it: all but 1,276 MiB, as
// measured on a 24 GiB card (23,300 MiB free); 0 of a smaller one.
uint64_t free_bytes_of_card(uint64_t vram_bytes);

}  // namespace apr
