// Whole prefills with FP8 products on the GPU, against those of mode f16.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/backend.h"
#include "support/compare.h"
#include "support/gpu_e4m3.h"
#include "support/open_gguf.h"

namespace apr::cuda {
namespace {

class GpuFp8Model : public ::testing::Test {
 protected:
  static constexpr TokenId kTokens = 65;

  void SetUp() override {
    ::unsetenv("BATCHED_PREFILL");
    ::unsetenv("FP8_PREFILL");
  }
  void TearDown() override { ::unsetenv("FP8_PREFILL"); }

  static std::unique_ptr<CudaBackend> backend(const Model& model, bool fp8_off = false,
                                              bool exact = false) {
    CudaBackendOptions options;
    options.context = 256;
    options.max_logit_rows = kTokens;
    options.exact = exact;
    options.fp8_prefill_off = fp8_off;
    return std::make_unique<CudaBackend>(model, options);
  }

  // [n_tokens, vocab] logits of one prefill.
  static std::vector<float> prefill(CudaBackend& backend, TokenId n_tokens) {
    std::vector<TokenId> ids;
    std::vector<int64_t> rows;
    for (TokenId id = 0; id < n_tokens; ++id) {
      ids.push_back((id * 37 + 11) % static_cast<TokenId>(backend.desc().n_tokens));
      rows.push_back(id);
    }
    backend.reset();
    std::vector<float> logits(rows.size() * static_cast<size_t>(backend.desc().vocab_rows));
    backend.forward(ids, rows, logits, nullptr);
    return logits;
  }
};

TEST_F(GpuFp8Model, LogitsAreNearThoseOfF16WhereFp8Ran) {
  APR_NEED_E4M3();
  const Model model(test::open_gguf(test::model_fixture("tiny-qwen2-legacy")));
  const size_t vocab = static_cast<size_t>(model.desc().vocab_rows);
  const auto f16 = backend(model);
  EXPECT_EQ(prefill_gemm_facts(*f16)->ran, "f16");
  ::setenv("FP8_PREFILL", "1", 1);
  const auto fp8 = backend(model);
  EXPECT_EQ(prefill_gemm_facts(*fp8)->requested, "fp8");
  EXPECT_EQ(prefill_gemm_facts(*fp8)->ran, "fp8");
  EXPECT_EQ(prefill_gemm_facts(*fp8)->reason, "");
  EXPECT_EQ(prefill_facts(*fp8)->precision, "fp8");
  EXPECT_EQ(fp8->projection()->half_store(), HalfStore::kCached);
  double least = 1.0;
  for (const TokenId n_tokens : {2, 3, 16, 17, static_cast<int>(kTokens)}) {
    const std::vector<float> wanted = prefill(*f16, n_tokens), found = prefill(*fp8, n_tokens);
    EXPECT_NE(found, wanted) << n_tokens << " tokens: FP8 leaves a trace";
    for (size_t row = 0; row < static_cast<size_t>(n_tokens); ++row) {
      const double cos = test::cosine(std::span(found).subspan(row * vocab, vocab),
                                      std::span(wanted).subspan(row * vocab, vocab));
      EXPECT_GE(cos, 0.95) << n_tokens << " tokens, position " << row;
      least = std::min(least, cos);
    }
  }
  std::printf("  least cosine of FP8 and f16 logits: %.6f\n", least);
  EXPECT_EQ(prefill(*fp8, kTokens), prefill(*fp8, kTokens));  // the same every time

  // A guard's second try is the f16 prefill.
  const auto off = backend(model, true);
  EXPECT_EQ(prefill_facts(*off)->precision, "f16");
  EXPECT_EQ(prefill_gemm_facts(*off)->requested, "f16");
  EXPECT_EQ(prefill(*off, kTokens), prefill(*f16, kTokens));
}

TEST_F(GpuFp8Model, StreamedWeightsGiveTheLogitsOfKeptOnes) {
  APR_NEED_E4M3();
  const Model model(test::open_gguf(test::model_fixture("tiny-qwen2-legacy")));
  ::setenv("FP8_PREFILL", "1", 1);
  const std::vector<float> kept = prefill(*backend(model), kTokens);
  CudaBackendOptions options;
  options.context = 256;
  options.max_logit_rows = kTokens;
  options.prefill_path = PrefillPath::kStreamed;
  CudaBackend streamed(model, options);
  EXPECT_EQ(streamed.projection()->half_store(), HalfStore::kStreamed);
  EXPECT_EQ(prefill_facts(streamed)->precision, "fp8");
  // The same operands; cuBLASLt may add in another order where a group is multiplied in parts.
  EXPECT_GE(test::cosine(prefill(streamed, kTokens), kept), 0.9999);
}

TEST_F(GpuFp8Model, IsRefusedInOneLineWithQkNormAndInExactMode) {
  APR_NEED_E4M3();
  ::setenv("FP8_PREFILL", "1", 1);
  const struct {
    const char* fixture;
    bool exact;
    const char *ran, *reason;
  } cases[] = {{"tiny-qwen3-kmix", false, "f16", "[#3413] FP8_PREFILL=1 is refused: "},
               {"tiny-qwen2-legacy", true, "f32", "FP8_PREFILL=1 is refused: exact mode"}};
  for (const auto& [fixture, exact, ran, reason] : cases) {
    const Model model(test::open_gguf(test::model_fixture(fixture)));
    ::testing::internal::CaptureStderr();
    const auto gpu = backend(model, false, exact);
    const std::string said = ::testing::internal::GetCapturedStderr();
    const size_t at = said.find("FP8_PREFILL=1 is refused");
    EXPECT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find("FP8_PREFILL=1 is refused", at + 1), std::string::npos) << said;
    EXPECT_EQ(prefill_gemm_facts(*gpu)->requested, "fp8") << fixture;
    EXPECT_EQ(prefill_gemm_facts(*gpu)->ran, ran) << fixture;
    EXPECT_EQ(prefill_gemm_facts(*gpu)->reason.find(reason), 0U)
        << prefill_gemm_facts(*gpu)->reason;
    EXPECT_EQ(prefill_facts(*gpu)->precision, ran) << fixture;
    EXPECT_EQ(prefill(*gpu, kTokens).size(),
              kTokens * static_cast<size_t>(model.desc().vocab_rows));
  }
}

}  // namespace
}  // namespace apr::cuda
