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

// Names of the kernel rows that attention of this shape needs.
std::vector<std::string> attention_kernels(const AttentionDesc& attention, bool f32_cache,
                                           bool tensor_cores);

}  // namespace apr::cuda
