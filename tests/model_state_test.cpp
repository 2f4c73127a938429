// Hybrids: conv windows, delta states and KV rows after a prompt do not depend on how it was cut.
// Bitwise, which lies within the bounds of exact mode: every CPU kernel gives a row the same bits
// whatever the number of rows of its call (cpu/op_args.h).
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "apr/error.h"
#include "cpu/backend.h"
#include "support/fixtures.h"

namespace apr {
namespace {

using StateBits =
    std::vector<std::vector<float>>;  // [n_states] recurrent state, or k rows + v rows

StateBits snapshot(const cpu::CpuBackend& backend) {
  StateBits bits;
  const cpu::SequenceState& state = backend.state();
  const auto& specs = backend.plan().states;
  for (size_t idx = 0; idx < specs.size(); ++idx) {
    const int state_idx = static_cast<int>(idx);
    if (specs[idx].kind == StateKind::kKvCache) {
      const int64_t n_elems = specs[idx].elems_per_position / 2 * state.n_past();
      std::vector<float> rows(state.k_cache(state_idx), state.k_cache(state_idx) + n_elems);
      rows.insert(rows.end(), state.v_cache(state_idx), state.v_cache(state_idx) + n_elems);
      bits.push_back(std::move(rows));
    } else {
      const float* in = state.recurrent_in(state_idx);
      bits.emplace_back(in, in + specs[idx].elems);
    }
  }
  return bits;
}

void feed(Backend& backend, std::span<const TokenId> ids) {
  while (!ids.empty()) {
    const size_t n = std::min(ids.size(), static_cast<size_t>(backend.max_rows()));
    ASSERT_TRUE(backend.forward(ids.first(n), {}, {}, nullptr));
    ids = ids.subspan(n);
  }
}

bool same_bits(const StateBits& a, const StateBits& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

class HybridState : public ::testing::TestWithParam<std::string> {};

TEST_P(HybridState, DoesNotDependOnChunks) {
  const auto path = test::model_path(GetParam());
  ASSERT_TRUE(path);
  const Model model(test::open_gguf(*path));
  const auto ids = test::load_json(*test::ref_path(GetParam() + ".logits.json"))["long_ids"]
                       .get<std::vector<TokenId>>();
  std::set<size_t> lengths = {127, 128, 129, 511, 512, 513, 956};
  for (size_t n = 1; n <= 70; ++n) {
    lengths.insert(n);
  }
  const CpuBackendOptions options{.n_threads = 2};
  std::map<size_t, StateBits> one_by_one;
  cpu::CpuBackend serial(model, options, 1024, 1);
  for (size_t n = 1; n <= ids.size(); ++n) {
    feed(serial, std::span(ids).subspan(n - 1, 1));
    if (lengths.contains(n)) {
      one_by_one[n] = snapshot(serial);
    }
  }
  cpu::CpuBackend batched(model, options, 1024, 512);
  for (const size_t n : lengths) {
    batched.reset();
    feed(batched, std::span(ids).first(n));
    EXPECT_TRUE(same_bits(snapshot(batched), one_by_one[n])) << n << " tokens at once";
    batched.reset();
    feed(batched, std::span(ids).first(n / 3));
    feed(batched, std::span(ids).first(n).subspan(n / 3));
    EXPECT_TRUE(same_bits(snapshot(batched), one_by_one[n])) << n << " tokens, split at a third";
  }
}

INSTANTIATE_TEST_SUITE_P(Hybrids, HybridState,
                         ::testing::Values("tiny-qwen35-Q4_K_M", "tiny-qwen35-UD-IQ2_XXS",
                                           "tiny-qwen35moe-mix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

// A sequence whose chunk fails half-way (a bad id) is as it was before.
TEST(SequenceState, RefusedStepLeavesNoTrace) {
  const Model model(test::open_gguf(*test::model_path("tiny-qwen35-Q4_K_M")));
  cpu::CpuBackend backend(model, {.n_threads = 1}, 64, 8);
  feed(backend, std::vector<TokenId>{1, 2, 3});
  const StateBits before = snapshot(backend);
  EXPECT_THROW(feed(backend, std::vector<TokenId>{4, 1 << 30}), Error);
  std::atomic<bool> cancel = true;
  EXPECT_FALSE(backend.forward(std::vector<TokenId>{4}, {}, {}, &cancel));
  EXPECT_EQ(backend.n_past(), 3);
  EXPECT_TRUE(same_bits(snapshot(backend), before));
}

}  // namespace
}  // namespace apr
