#include "cuda/prefill_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "apr/error.h"
#include "base/log.h"
#include "split_shape.h"

namespace apr::cuda {
namespace {

constexpr const char* kAttentionVariable = "APR_QWEN35_PREFILL_ATTENTION";

}  // namespace

const char* prefill_attention_name(PrefillAttention mode) {
  switch (mode) {
    case PrefillAttention::kFlash:
      return "flash";
    case PrefillAttention::kF32:
      return "f32";
  }
  check_failed("a prefill attention has a name", __FILE__, __LINE__, "");
}

ParsedPrefillAttention parse_prefill_attention(const char* text) {
  const std::string_view found = text == nullptr ? "" : text;
  for (const PrefillAttention mode : {PrefillAttention::kFlash, PrefillAttention::kF32}) {
    if (found == prefill_attention_name(mode)) {
      return {mode};
    }
  }
  if (found.empty()) {
    return {};
  }
  return {PrefillAttention::kFlash,
          fmt::format("{}={} is not f32 or flash; flash is used", kAttentionVariable, found)};
}

PrefillAttention prefill_attention_from_environment() {
  static const PrefillAttention mode = [] {
    const ParsedPrefillAttention parsed = parse_prefill_attention(std::getenv(kAttentionVariable));
    if (!parsed.warning.empty()) {
      log_warning(parsed.warning);
    }
    return parsed.mode;
  }();
  return mode;
}

AttentionChoice choose_attention(const AttentionCase& of) {
  if (of.f32_cache) {
    return of.n_tokens == 1
               ? AttentionChoice{AttentionPath::kTokens, "f32 cache: f32 products"}
               : AttentionChoice{AttentionPath::kQueryPasses, "f32 cache: f32 products in passes"};
  }
  if (!of.tensor_cores) {
    return {AttentionPath::kTokens, "no tensor cores with m16n8k16 before sm_80: token by token"};
  }
  if (of.n_tokens <= kMostSplitTokens) {
    return {AttentionPath::kSplits, "few tokens: split over the keys"};
  }
  return {AttentionPath::kFlash, "many tokens: tiles on tensor cores"};
}

int64_t query_pass_rows(int64_t n_heads, int64_t n_keys, int64_t n_left, int64_t budget_bytes) {
  const int64_t row_bytes = n_heads * n_keys * 4;
  return std::min(std::max(budget_bytes / row_bytes, int64_t{1}), n_left);
}

int64_t attention_splits(int64_t n_sm, int64_t n_kv_heads, int64_t head_dim) {
  const int64_t blocks_per_sm = head_dim > 64 ? 1 : 2;  // as attention_split's launch bounds say
  return std::clamp(blocks_per_sm * n_sm / n_kv_heads, int64_t{1}, int64_t{kMostSplits});
}

AttentionSizes attention_sizes(const ModelDesc& desc, int64_t n_sm, bool tensor_cores,
                               const AttentionOptions& options) {
  const AttentionDesc& attention = desc.attention;
  const auto path = [&](int64_t n_tokens) {
    return choose_attention({n_tokens, options.f32_cache, tensor_cores}).path;
  };
  AttentionSizes sizes;
  sizes.n_splits = path(1) == AttentionPath::kSplits
                       ? attention_splits(n_sm, attention.n_kv_heads, attention.head_dim)
                       : kTokenSplits;
  // Tokens of a launch that has partial results, and splits of all of them.
  int64_t n_tokens = std::min(options.max_rows, kMostSplitTokens);
  int64_t n_partial = n_tokens * sizes.n_splits;
  if (path(1) == AttentionPath::kTokens) {
    n_tokens = path(2) == AttentionPath::kTokens ? options.max_rows : 1;
    n_partial = std::max(n_tokens, kTokenSplits);  // several tokens have one each
  }
  const auto bytes = [](int64_t n_elems) { return static_cast<uint64_t>(n_elems) * 4; };
  sizes.frequencies = desc.rope.inv_freq.size() * 4;
  sizes.counters = bytes(n_tokens * attention.n_kv_heads);
  sizes.partial = bytes(n_partial * attention.n_heads * (attention.head_dim + 2));
  sizes.stats = bytes(n_partial * attention.n_heads * 2);
  if (options.f32_cache && options.max_rows > 1) {
    const int64_t row_bytes = attention.n_heads * options.context * 4;
    sizes.scores = static_cast<uint64_t>(
        std::clamp(options.score_budget_bytes, row_bytes, options.max_rows * row_bytes));
  }
  return sizes;
}

std::vector<std::string> attention_kernels(const AttentionDesc& attention, bool f32_cache,
                                           bool tensor_cores) {
  const char* element = f32_cache ? "f32" : "f16";
  std::vector<std::string> names{
      fmt::format("qk_rope_append.{}", element),
      fmt::format("attention_decode.{}.{}.{}", element, attention.head_dim,
                  attention.n_heads / attention.n_kv_heads)};
  if (f32_cache) {
    names.insert(names.end(), {"attention_softmax", "attention_gate"});
  } else if (tensor_cores) {
    for (const char* kernel : {"attention_prefill", "attention_split", "attention_split_fused"}) {
      names.push_back(fmt::format("{}.{}", kernel, attention.head_dim));
    }
  }
  return names;
}

}  // namespace apr::cuda
