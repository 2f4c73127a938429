#include "cuda/prefill_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "apr/error.h"
#include "base/log.h"

namespace apr::cuda {
namespace {

constexpr const char* kVariable = "APR_QWEN35_PREFILL_ATTENTION";

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
          fmt::format("{}={} is not f32 or flash; flash is used", kVariable, found)};
}

PrefillAttention prefill_attention_from_environment() {
  static const PrefillAttention mode = [] {
    const ParsedPrefillAttention parsed = parse_prefill_attention(std::getenv(kVariable));
    if (!parsed.warning.empty()) {
      log_warning(parsed.warning);
    }
    return parsed.mode;
  }();
  return mode;
}

AttentionChoice choose_attention(const AttentionCase& of) {
  if (of.n_tokens == 1) {
    return {AttentionPath::kDecode, "one token"};
  }
  if (of.f32_cache) {
    return {AttentionPath::kQueryPasses, "f32 cache: f32 products in passes"};
  }
  if (!of.tensor_cores) {
    return {AttentionPath::kDecode, "no tensor cores with m16n8k16 before sm_80: token by token"};
  }
  if (of.n_tokens <= kMostDecodeTokens) {
    return {AttentionPath::kDecode, "few tokens: split over the keys"};
  }
  return {AttentionPath::kFlash, "many tokens: tiles on tensor cores"};
}

int64_t query_pass_rows(int64_t n_heads, int64_t n_keys, int64_t n_left, int64_t budget_bytes) {
  const int64_t row_bytes = n_heads * n_keys * 4;
  return std::min(std::max(budget_bytes / row_bytes, int64_t{1}), n_left);
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
    names.push_back(fmt::format("attention_prefill.{}", attention.head_dim));
  }
  return names;
}

}  // namespace apr::cuda
