// Which products a prefill's projections run, and where their 16- or 8-bit weights live: pure
// functions.
#pragma once

#include <cstdint>
#include <string>

#include "apr/cuda.h"
#include "apr/model.h"

namespace apr::cuda {

const char* prefill_gemm_name(PrefillGemm gemm);  // "f16": as APR_QWEN35_PREFILL_GEMM has it

// f16 and fp8: weights made from the file's, rows scaled by powers of two.
bool scales_rows(PrefillGemm gemm);

struct ParsedPrefillGemm {
  PrefillGemm gemm = PrefillGemm::kF16;
  std::string warning = {};  // for a text that names no mode; empty for a good one
};

// `text`: f16, f32, dp4a, or null or empty for the default, which a bad one gets too. fp8 has a
// variable of its own, FP8_PREFILL.
ParsedPrefillGemm parse_prefill_gemm(const char* text);

// APR_QWEN35_PREFILL_GEMM, read and, where bad, warned of once in a process.
PrefillGemm prefill_gemm_from_environment();

// What ran and why it was not what was asked for; empty `reason`: it was.
struct GemmChoice {
  PrefillGemm ran = PrefillGemm::kF16;
  std::string reason = {};
};

// The mode of a whole prefill. Exact mode multiplies in f32.
GemmChoice choose_prefill_gemm(PrefillGemm requested, bool exact);

// The product of one matrix in `mode` with results `ldc` elements a row: dp4a takes Q4_K alone,
// with ldc == n_rows and whole blocks of 256 columns; what it does not take runs f32. fp8 takes
// multiples of 16 rows and columns; where one does not, f16 runs for all matrices of its input.
GemmChoice choose_gemm(PrefillGemm mode, const Weight& weight, int64_t ldc);

// Where the 16- or 8-bit weights of mode f16 or fp8 are.
enum class HalfStore {
  kCached,    // all of them in device memory, made once
  kStreamed,  // made again for each product, in one scratch
};

struct HalfStoreChoice {
  HalfStore store = HalfStore::kCached;
  std::string reason = {};  // why not cached
};

constexpr uint64_t kHalfReserveBytes = uint64_t{1} << 30;  // that a cache leaves free

// Cached where cache_bytes + 1 GiB fit in free_bytes; `width` names them: "16-bit".
HalfStoreChoice choose_half_store(uint64_t cache_bytes, uint64_t free_bytes, const char* width);

}  // namespace apr::cuda
