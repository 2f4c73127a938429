// On a card: the three paths of a prefill agree, and what is planned is what is taken.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/backend.h"
#include "support/compare.h"
#include "support/gpu.h"
#include "support/open_gguf.h"
#include "support/real_shapes.h"

namespace apr::cuda {
namespace {

constexpr PrefillPath kPaths[] = {PrefillPath::kBatched, PrefillPath::kStreamed,
                                  PrefillPath::kSerial};

// Feeds `ids` in the chunks that the backend takes; the logits of the last.
std::vector<float> feed(CudaBackend& backend, std::span<const TokenId> ids) {
  std::vector<float> logits(static_cast<size_t>(backend.desc().vocab_rows));
  while (!ids.empty()) {
    const size_t n_tokens = std::min(ids.size(), static_cast<size_t>(backend.max_rows()));
    const std::vector<int64_t> last = {static_cast<int64_t>(n_tokens) - 1};
    backend.forward(ids.first(n_tokens), last, logits, nullptr);
    ids = ids.subspan(n_tokens);
  }
  return logits;
}

// Default mode's bound; each path against the batched one, at the last position and after a step.
TEST(GpuPrefillPaths, Agree) {
  APR_NEED_GPU();
  for (const char* name : {"tiny-qwen2-legacy", "tiny-qwen3-kmix", "tiny-qwen3-iqmix"}) {
    const Model model(test::open_gguf(test::model_fixture(name)));
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < 300; ++id) {
      ids.push_back((id * 37 + 11) % static_cast<TokenId>(model.desc().n_tokens));
    }
    std::vector<float> batched, batched_step;
    for (const PrefillPath path : kPaths) {
      CudaBackend backend(model, {.context = 512,
                                  .prefill_chunk = 128,
                                  .prefill_gemm = PrefillGemm::kF16,
                                  .prefill_path = path});
      const auto facts = prefill_facts(backend);
      ASSERT_TRUE(facts);
      EXPECT_EQ(facts->path, prefill_path_name(path));
      const std::vector<float> logits = feed(backend, ids);
      const std::vector<float> step = feed(backend, std::span(ids).first(1));
      if (path == PrefillPath::kBatched) {
        batched = logits;
        batched_step = step;
      }
      EXPECT_GE(test::cosine(logits, batched), 0.9999) << name << " " << facts->path;
      EXPECT_GE(test::cosine(step, batched_step), 0.9999) << name << " " << facts->path;
    }
  }
}

// Memory taken, less what the card holds with an idle context and its libraries, within
// [0.95, 1.02] of the plan: three paths of three real shapes (weights are zero: no value matters)
// at contexts of 2K and 32K, each filled.
TEST(GpuMemoryPlan, IsWhatIsTaken) {
  APR_NEED_GPU();
  {  // What the libraries load at their first products stays: it is of the idle context.
    const Model model(test::open_gguf(test::model_fixture("tiny-qwen3-kmix")));
    CudaBackend backend(model, {.context = 512, .prefill_gemm = PrefillGemm::kF16});
    feed(backend, std::vector<TokenId>(500, 1));
  }
  for (const auto& shape : {test::kQwen3Small, test::kQwen3Medium, test::kQwen3Large}) {
    const test::TempFolder folder;
    test::dense_writer(shape).write_sparse(folder / "model.gguf");
    const Model model(test::open_gguf(folder / "model.gguf"));
    for (const int64_t context : {2048, 32768}) {
      for (const PrefillPath path : kPaths) {
        const bool serial = path == PrefillPath::kSerial;
        const uint64_t idle_bytes = device_memory().free_bytes;
        CudaBackend backend(
            model, {.context = context, .prefill_gemm = PrefillGemm::kF16, .prefill_path = path});
        if (idle_bytes < backend.decision().memory.planned_bytes() + (uint64_t{2} << 30)) {
          GTEST_SKIP() << "SKIPPED: this card is too small for " << model.desc().model_dim;
        }
        // A token at a time the whole context takes minutes: the pages it would map are added.
        const int64_t n_tokens = serial ? std::min<int64_t>(context, 64) : context - 1;
        feed(backend, std::vector<TokenId>(static_cast<size_t>(n_tokens), 1));
        feed(backend, std::vector<TokenId>(1, 1));
        uint64_t unmapped_bytes = 0;
        if (serial) {
          const int64_t row_bytes = cache_row_bytes(model.desc(), false);
          const uint64_t mapped =
              (static_cast<uint64_t>((n_tokens + 1) * row_bytes) + kDevicePageBytes - 1) /
              kDevicePageBytes * kDevicePageBytes;
          unmapped_bytes = backend.decision().memory.bytes(MemoryUse::kKv) -
                           2 * mapped * static_cast<uint64_t>(model.desc().n_layers);
        }
        const uint64_t taken = idle_bytes - device_memory().free_bytes + unmapped_bytes;
        const uint64_t planned = backend.decision().memory.planned_bytes();
        const double ratio = static_cast<double>(taken) / static_cast<double>(planned);
        std::printf("  width %lld, context %lld, %s: planned %.1f MB, taken %.1f MB, %.4f\n",
                    static_cast<long long>(model.desc().model_dim), static_cast<long long>(context),
                    prefill_path_name(path), static_cast<double>(planned) / 1e6,
                    static_cast<double>(taken) / 1e6, ratio);
        EXPECT_GE(ratio, 0.95);
        EXPECT_LE(ratio, 1.02);
      }
    }
  }
}

}  // namespace
}  // namespace apr::cuda
