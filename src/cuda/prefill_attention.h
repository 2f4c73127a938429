// Which kernels a step's attention runs, and how: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apr/cuda.h"
#include "apr/model.h"

namespace apr::cuda {

const char* prefill_attention_name(PrefillAttention mode);  // "flash": as its variable has it

struct ParsedPrefillAttention {
  PrefillAttention mode = PrefillAttention::kFlash;
  std::string warning = {};  // for a text that names no mode; empty for a good one
};

// `text`: f32, flash, or null or empty for the default, which a bad one gets too.
ParsedPrefillAttention parse_prefill_attention(const char* text);

// APR_QWEN35_PREFILL_ATTENTION, read and, where bad, warned of once in a process.
PrefillAttention prefill_attention_from_environment();

enum class AttentionPath {
  kTokens,       // one token after the other, split over the keys
  kSplits,       // the same on tensor cores, f16 operands; a single token with its preparation
  kFlash,        // tiles of tokens on tensor cores, f16 operands
  kQueryPasses,  // f32 products of cuBLAS with a buffer of scores
};

struct AttentionChoice {
  AttentionPath path = AttentionPath::kTokens;
  const char* reason = "";
};

// What a choice depends on.
struct AttentionCase {
  int64_t n_tokens = 1;
  bool f32_cache = false;     // exact mode, or f32 attention asked for
  bool tensor_cores = false;  // m16n8k16 with f16: sm_80 and later
};

constexpr int64_t kMostSplitTokens = 8;  // of a step; more take tiles of tokens

AttentionChoice choose_attention(const AttentionCase& of);

// Rows of queries of the next pass: those whose scores, [n_heads, rows, n_keys] f32, fit in
// budget_bytes; at least 1, at most n_left.
int64_t query_pass_rows(int64_t n_heads, int64_t n_keys, int64_t n_left, int64_t budget_bytes);

// Splits of a kv head's keys in a launch of kSplits: blocks for every multiprocessor.
int64_t attention_splits(int64_t n_sm, int64_t n_kv_heads, int64_t head_dim);

constexpr int64_t kTokenSplits = 16;  // of a launch with one token by kTokens
constexpr int64_t kScoreBudgetBytes = int64_t{256} << 20;

struct AttentionOptions {
  bool f32_cache = false;
  int64_t max_rows = 1, context = 1;               // tokens of a step, positions
  int64_t score_budget_bytes = kScoreBudgetBytes;  // of kQueryPasses; a row at the least
};

// Buffers of an Attention, in bytes; 0: there is none.
struct AttentionSizes {
  int64_t n_splits = 0;  // of a launch with one token, or of kSplits
  uint64_t frequencies = 0, counters = 0, partial = 0, stats = 0, scores = 0;
};
AttentionSizes attention_sizes(const ModelDesc& desc, int64_t n_sm, bool tensor_cores,
                               const AttentionOptions& options);

// Names of the kernel rows that attention of this shape needs.
std::vector<std::string> attention_kernels(const AttentionDesc& attention, bool f32_cache,
                                           bool tensor_cores);

}  // namespace apr::cuda
