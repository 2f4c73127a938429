// Whole prefills in every mode of products: what ran, what was made, and how near the logits are.
#include <gtest/gtest.h>

#include "cuda/backend.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/gpu.h"
#include "support/open_gguf.h"

namespace apr::cuda {
namespace {

class GpuPrefillModes : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    APR_NEED_GPU();
    model_ = std::make_unique<Model>(test::open_gguf(test::model_fixture(GetParam())));
    for (TokenId id = 0; id < kTokens; ++id) {
      ids_.push_back((id * 37 + 11) % static_cast<TokenId>(model_->desc().n_tokens));
    }
  }

  std::unique_ptr<CudaBackend> backend(PrefillGemm gemm, bool exact = false) const {
    CudaBackendOptions options;
    options.context = 256;
    options.max_logit_rows = kTokens;
    options.exact = exact;
    options.prefill_gemm = gemm;
    return std::make_unique<CudaBackend>(*model_, options);
  }

  // [rows, vocab] logits of one prefill of all ids.
  std::vector<float> prefill(CudaBackend& backend, const std::vector<int64_t>& rows) const {
    backend.reset();
    std::vector<float> logits(rows.size() * static_cast<size_t>(model_->desc().vocab_rows));
    backend.forward(ids_, rows, logits, nullptr);
    return logits;
  }

  static constexpr TokenId kTokens = 65;
  std::unique_ptr<Model> model_;
  std::vector<TokenId> ids_;
};

TEST_P(GpuPrefillModes, ASecondPrefillMakesNoWeights) {
  const auto gpu = backend(PrefillGemm::kF16);
  EXPECT_EQ(gpu->projection()->half_store(), HalfStore::kCached);
  const std::vector<float> first = prefill(*gpu, {kTokens - 1});
  const Dequantizer::Launches before = gpu->projection()->dequant_launches();
  EXPECT_FALSE(before.empty());
  EXPECT_EQ(prefill(*gpu, {kTokens - 1}), first);
  EXPECT_EQ(gpu->projection()->dequant_launches(), before);
}

// f16 and dp4a by the rules of default mode (8-bit activations: 0.999), f32 by those of exact mode.
TEST_P(GpuPrefillModes, LogitsAreNearThoseOfExactMode) {
  const std::vector<int64_t> rows = {0, 1, 7, 31, 32, 63, kTokens - 1};
  const size_t vocab = static_cast<size_t>(model_->desc().vocab_rows);
  const auto exact = backend(PrefillGemm::kF16, true);
  EXPECT_EQ(exact->projection()->report().requested, PrefillGemm::kF16);
  EXPECT_EQ(exact->projection()->report().ran, PrefillGemm::kF32);
  const std::vector<float> oracle = prefill(*exact, rows);
  for (const auto& [gemm, least] :
       {std::pair{PrefillGemm::kF16, 0.9999}, std::pair{PrefillGemm::kF32, 0.9999},
        std::pair{PrefillGemm::kDp4a, 0.999}}) {
    const auto gpu = backend(gemm);
    const PrefillGemmReport& report = gpu->projection()->report();
    EXPECT_EQ(report.requested, gemm);
    EXPECT_TRUE(report.ran == gemm || !report.reason.empty());
    const std::vector<float> logits = prefill(*gpu, rows);
    for (size_t row = 0; row < rows.size(); ++row) {
      EXPECT_GE(test::cosine(std::span(logits).subspan(row * vocab, vocab),
                             std::span(oracle).subspan(row * vocab, vocab)),
                least)
          << prefill_gemm_name(gemm) << " position " << rows[row];
    }
  }
}

TEST_P(GpuPrefillModes, StreamedWeightsGiveTheLogitsOfKeptOnes) {
  const std::vector<int64_t> rows = {0, 32, kTokens - 1};
  const std::vector<float> kept = prefill(*backend(PrefillGemm::kF16), rows);
  Api table = api();
  table.cudaMemGetInfo = [](size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = *total_bytes = size_t{1} << 30;  // what a cache must leave free
    return cudaSuccess;
  };
  const ScopedApi scope(table);
  const auto gpu = backend(PrefillGemm::kF16);
  EXPECT_EQ(gpu->projection()->half_store(), HalfStore::kStreamed);
  EXPECT_EQ(gpu->projection()->report().ran, PrefillGemm::kF16);
  EXPECT_NE(gpu->projection()->report().reason, "");
  // The same operands; cuBLAS may add in another order where a group is multiplied in parts.
  EXPECT_GE(test::cosine(prefill(*gpu, rows), kept), 0.999999);
}

INSTANTIATE_TEST_SUITE_P(Dense, GpuPrefillModes,
                         ::testing::Values("tiny-qwen2-legacy", "tiny-qwen3-kmix",
                                           "tiny-qwen3-iqmix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr::cuda
