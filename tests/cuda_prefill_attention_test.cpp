// Which kernels attention runs: pure functions, no GPU.
#include "cuda/prefill_attention.h"

#include <gtest/gtest.h>

#include "cuda/kernel_table.h"

namespace apr::cuda {
namespace {

TEST(PrefillAttention, IsReadFromItsVariable) {
  for (const PrefillAttention mode : {PrefillAttention::kFlash, PrefillAttention::kF32}) {
    const ParsedPrefillAttention parsed = parse_prefill_attention(prefill_attention_name(mode));
    EXPECT_EQ(parsed.mode, mode);
    EXPECT_EQ(parsed.warning, "");
  }
  for (const char* text : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(parse_prefill_attention(text).mode, PrefillAttention::kFlash);
    EXPECT_EQ(parse_prefill_attention(text).warning, "");
  }
  for (const char* text : {"Flash", "f16", "f32 ", "flash2"}) {
    const ParsedPrefillAttention parsed = parse_prefill_attention(text);
    EXPECT_EQ(parsed.mode, PrefillAttention::kFlash) << text;
    EXPECT_EQ(parsed.warning, "APR_QWEN35_PREFILL_ATTENTION=" + std::string(text) +
                                  " is not f32 or flash; flash is used");
  }
}

TEST(PrefillAttention, PathFollowsTokensCacheAndTensorCores) {
  struct Row {
    AttentionCase of;
    AttentionPath path;
    std::string_view reason;
  };
  using enum AttentionPath;
  const Row rows[] = {
      {{1, false, true}, kSplits, "few tokens: split over the keys"},
      {{1, true, true}, kTokens, "f32 cache: f32 products"},
      {{1, false, false}, kTokens, "no tensor cores with m16n8k16 before sm_80: token by token"},
      {{2, false, true}, kSplits, "few tokens: split over the keys"},
      {{8, false, true}, kSplits, "few tokens: split over the keys"},
      {{9, false, true}, kFlash, "many tokens: tiles on tensor cores"},
      {{2048, false, true}, kFlash, "many tokens: tiles on tensor cores"},
      {{9, false, false}, kTokens, "no tensor cores with m16n8k16 before sm_80: token by token"},
      {{2, true, true}, kQueryPasses, "f32 cache: f32 products in passes"},
      {{2048, true, false}, kQueryPasses, "f32 cache: f32 products in passes"},
  };
  for (const Row& row : rows) {
    const AttentionChoice choice = choose_attention(row.of);
    EXPECT_EQ(choice.path, row.path) << row.of.n_tokens;
    EXPECT_EQ(choice.reason, row.reason);
  }
}

TEST(QueryPasses, FitTheirBudgetAndTakeARowAtLeast) {
  EXPECT_EQ(query_pass_rows(8, 100, 50, 8 * 100 * 4 * 20), 20);
  EXPECT_EQ(query_pass_rows(8, 100, 50, 8 * 100 * 4 * 20 - 1), 19);
  EXPECT_EQ(query_pass_rows(8, 100, 7, 8 * 100 * 4 * 20), 7);
  EXPECT_EQ(query_pass_rows(8, 100, 50, 1), 1);
  EXPECT_EQ(query_pass_rows(128, int64_t{1} << 20, 2048, int64_t{256} << 20), 1);
}

TEST(AttentionSplits, FillTheMultiprocessors) {
  EXPECT_EQ(attention_splits(132, 8, 128), 16);
  EXPECT_EQ(attention_splits(132, 8, 64), 33);
  EXPECT_EQ(attention_splits(132, 2, 256), 66);
  EXPECT_EQ(attention_splits(132, 1, 64), 264);
  EXPECT_EQ(attention_splits(1000, 1, 64), 264);
  EXPECT_EQ(attention_splits(16, 40, 128), 1);
}

TEST(AttentionKernels, AreRowsOfTheTable) {
  for (const int64_t head_dim : {64, 128, 256}) {
    for (int64_t group = 1; group <= 8; ++group) {
      for (const bool f32_cache : {false, true}) {
        for (const bool tensor_cores : {false, true}) {
          const AttentionDesc attention{
              .n_heads = 2 * group, .n_kv_heads = 2, .head_dim = head_dim};
          for (const std::string& name : attention_kernels(attention, f32_cache, tensor_cores)) {
            EXPECT_EQ(kernel_row(name).name, name);
            EXPECT_TRUE(tensor_cores || runs_on(kernel_row(name), "sm_75")) << name;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace apr::cuda
