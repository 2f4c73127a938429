// The attention kernels as they are, on the host, against the reference kernels: indices,
// fragments, tails and masks, without a GPU. What is not in the cache or in the result is NaN.
#include <gtest/gtest.h>

// Kernels of the overlay, see tests/cuda_tests.cmake.
#include "attention_prefill.cu"
#include "attention_split.cu"
#include "qk_rope_append.cu"
#include "support/attention_problem.h"

namespace apr {
namespace {

using test::AttentionCase;
using test::AttentionProblem;

enum class Kernel { kPrefill, kSplit, kSplitFused };

// An array of T at an address that loads of 16 bytes take.
template <class T>
std::span<T> aligned_copy(const std::vector<T>& values, std::vector<float4>& storage) {
  storage.assign(values.size() * sizeof(T) / sizeof(float4) + 1, float4{});
  std::memcpy(storage.data(), values.data(), values.size() * sizeof(T));
  return {reinterpret_cast<T*>(storage.data()), values.size()};
}

template <int kHeadDim>
void run(const AttentionCase& c, Kernel kernel, int n_splits = 1) {
  SCOPED_TRACE(test::describe(c));
  const AttentionProblem p(c);
  std::vector<float4> storage[6];
  const std::span<float> q = aligned_copy(p.q_in, storage[0]), k = aligned_copy(p.k, storage[1]),
                         v = aligned_copy(p.v, storage[2]);
  const std::span<uint16_t> k_cache = aligned_copy(test::f16_of(p.k_cache), storage[3]),
                            v_cache = aligned_copy(test::f16_of(p.v_cache), storage[4]);
  const std::span<float> y = aligned_copy(
      std::vector<float>(static_cast<size_t>((c.n_tokens + 1) * p.q_dim), std::nanf("")),
      storage[5]);
  const StepState step{static_cast<int32_t>(c.position), static_cast<int32_t>(c.n_tokens)};
  const int parts = c.gate ? 2 : 1, group = static_cast<int>(c.group);
  QkRopeAppendParams in{};
  in.step = &step;
  in.q = {q.data(), p.q_dim * parts, kHeadDim * parts};
  in.k = k.data();
  in.v = v.data();
  in.q_norm = c.norms ? p.q_norm.data() : nullptr;
  in.k_norm = c.norms ? p.k_norm.data() : nullptr;
  in.inv_freq = p.desc.rope.inv_freq.data();
  in.cache = {k_cache.data(), v_cache.data()};
  in.n_heads = static_cast<int32_t>(p.n_heads);
  in.n_kv_heads = static_cast<int32_t>(c.n_kv_heads);
  in.head_dim = kHeadDim;
  in.n_rot = static_cast<int32_t>(p.desc.rope.n_rot);
  in.eps = test::kAttentionEps;
  in.magnitude = 1.0F;
  AttentionGate gate{};
  if (c.gate) {
    gate = {q.data() + kHeadDim, in.q.token_stride, in.q.head_stride};
  }
  const auto n_tokens = static_cast<unsigned>(c.n_tokens);
  const auto n_kv_heads = static_cast<unsigned>(c.n_kv_heads);
  if (kernel != Kernel::kSplitFused) {
    const unsigned n_units = static_cast<unsigned>(p.n_heads) + 2 * n_kv_heads;
    simt::launch({n_tokens, (n_units + 7) / 8, 1}, 256, 8 * kHeadDim * 4,
                 [&] { qk_rope_append<KvF16>(in); });
  }
  if (kernel == Kernel::kPrefill) {
    using Shape = FlashShape<kHeadDim>;
    const AttentionPrefillParams params{&step,    in.q,       in.cache,      gate,
                                        y.data(), in.n_heads, in.n_kv_heads, p.scale};
    const unsigned n_rows = n_tokens * static_cast<unsigned>(group);
    simt::launch({n_kv_heads, (n_rows + Shape::kRows - 1) / Shape::kRows, 1}, Shape::kWarps * 32,
                 Shape::kSharedBytes, [&] { attention_prefill<kHeadDim>(params); });
  } else {
    const size_t n_partial = static_cast<size_t>(c.n_tokens * p.n_heads * n_splits);
    std::vector<float4> partial(n_partial * kHeadDim / 4);
    std::vector<float> stats(n_partial * 2, std::nanf(""));
    std::vector<uint32_t> counters(static_cast<size_t>(c.n_tokens * c.n_kv_heads), 0);
    const AttentionSplitParams params{
        gate,    y.data(), reinterpret_cast<float*>(partial.data()), stats.data(), counters.data(),
        p.scale, in};
    simt::launch({n_kv_heads, static_cast<unsigned>(n_splits), n_tokens}, kSplitThreads,
                 static_cast<size_t>(split_shared_bytes(kHeadDim, group, n_splits)), [&] {
                   if (kernel == Kernel::kSplitFused) {
                     attention_split<kHeadDim, true>(params);
                   } else {
                     attention_split<kHeadDim, false>(params);
                   }
                 });
    EXPECT_EQ(counters, std::vector<uint32_t>(counters.size(), 0));
  }
  const std::vector<float> keys = test::f32_of({k_cache.begin(), k_cache.end()});
  const std::vector<float> values = test::f32_of({v_cache.begin(), v_cache.end()});
  test::check_cache(p, p.k_cache, p.k_new, keys, "keys");
  test::check_cache(p, p.v_cache, p.v, values, "values");
  const auto n_result = static_cast<size_t>(c.n_tokens * p.q_dim);
  for (size_t elem = n_result; elem < y.size(); ++elem) {
    ASSERT_TRUE(std::isnan(y[elem])) << "element " << elem << " behind the result was written";
  }
  test::check_result(p, keys, values, {y.begin(), y.begin() + static_cast<long>(n_result)});
}

template <int kHeadDim>
void run_prefills() {
  for (const int64_t n_tokens : {1, 9, 17, 65}) {
    for (const int64_t position : {0, 37, 130}) {
      run<kHeadDim>({.head_dim = kHeadDim,
                     .n_kv_heads = n_tokens == 17 ? 2 : 1,
                     .group = 1 + (n_tokens + position) % 3,
                     .n_tokens = n_tokens,
                     .position = position,
                     .norms = n_tokens % 2 == 1,
                     .gate = position == 37},
                    Kernel::kPrefill);
    }
  }
  run<kHeadDim>({.head_dim = kHeadDim,
                 .n_kv_heads = 1,
                 .group = 3,
                 .n_tokens = 63,
                 .position = 5,
                 .inputs = test::AttentionInputs::kRising},
                Kernel::kPrefill);
}

TEST(AttentionOnHost, PrefillIsWithinItsBound) {
  run_prefills<64>();
  run_prefills<128>();
  run_prefills<256>();
}

template <int kHeadDim>
void run_steps() {
  for (const int64_t position : {0, 1, 15, 16, 17, 127, 128, 255, 256, 300}) {
    run<kHeadDim>({.head_dim = kHeadDim,
                   .group = 1 + position % 8,
                   .position = position,
                   .norms = position % 2 == 1,
                   .gate = position == 17},
                  Kernel::kSplitFused, 4);
  }
  // A ninth and tenth head to prepare; a combination of many splits; splits of several tiles.
  for (const int n_splits : {3, 33}) {
    run<kHeadDim>(
        {.head_dim = kHeadDim, .n_kv_heads = 1, .group = 8, .position = 1500, .norms = true},
        Kernel::kSplitFused, n_splits);
    run<kHeadDim>({.head_dim = kHeadDim, .n_kv_heads = 1, .group = 7, .position = 31, .gate = true},
                  Kernel::kSplitFused, n_splits);
  }
  for (const int64_t n_tokens : {1, 3, 8}) {
    for (const int64_t position : {0, 140, 500}) {
      run<kHeadDim>({.head_dim = kHeadDim,
                     .n_kv_heads = 1,
                     .group = 1 + (n_tokens + position) % 8,
                     .n_tokens = n_tokens,
                     .position = position,
                     .norms = true,
                     .gate = position == 140},
                    Kernel::kSplit, 5);
    }
  }
}

TEST(AttentionOnHost, StepIsWithinItsBound) {
  run_steps<64>();
  run_steps<128>();
  run_steps<256>();
}

}  // namespace
}  // namespace apr
