// The memory plan against what the backend allocates, byte by byte; the decisions it leads to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/backend.h"
#include "support/cuda_double.h"
#include "support/expect_error.h"
#include "support/model_variants.h"
#include "support/open_gguf.h"
#include "support/real_shapes.h"

namespace apr::cuda {
namespace {

constexpr uint64_t kCardGiB = uint64_t{1} << 30;
constexpr PrefillPath kPaths[] = {PrefillPath::kBatched, PrefillPath::kStreamed,
                                  PrefillPath::kSerial};

class MemoryPlanTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", "relative", 1);  // no cache of kernels
    ::unsetenv("HOME");
    ::unsetenv("BATCHED_PREFILL");
    ::unsetenv("FP8_PREFILL");
    set_log_level(LogLevel::kQuiet);
  }
  void TearDown() override { set_log_level(LogLevel::kNormal); }
};

// A fixture with all matrices of one type: few kernels to "compile".
std::vector<std::byte> uniform_image(const std::string& name, uint32_t type_id) {
  test::GgufWriter model = test::GgufWriter::copy_of(test::open_gguf(test::model_fixture(name)));
  for (test::WriterTensor& tensor : model.tensors()) {
    if (tensor.shape.size() > 1) {
      test::retype_tensor(tensor, type_id);
    }
  }
  return model.bytes();
}

// Fills the context, in chunks as the backend takes them.
void fill(CudaBackend& backend) {
  std::vector<float> logits(static_cast<size_t>(backend.desc().vocab_rows));
  while (backend.n_past() < backend.context()) {
    const int64_t n_tokens = std::min(backend.max_rows(), backend.context() - backend.n_past());
    const std::vector<TokenId> ids(static_cast<size_t>(n_tokens), 1);
    const std::vector<int64_t> last = {n_tokens - 1};
    backend.forward(ids, last, logits, nullptr);
  }
}

TEST_F(MemoryPlanTest, IsWhatTheBackendAllocates) {
  const std::pair<const char*, uint32_t> models[] = {{"tiny-qwen2-legacy", test::kTypeMxfp4},
                                                     {"tiny-qwen3-iqmix", test::kTypeMxfp4},
                                                     {"tiny-qwen3-kmix", test::kTypeMxfp4},
                                                     {"tiny-qwen3moe-mix", test::kTypeMxfp4}};
  for (const auto& [name, type_id] : models) {
    const std::vector<std::byte> image = uniform_image(name, type_id);
    const Model model(test::open_gguf_image(image));
    for (const PrefillPath path : kPaths) {
      for (const PrefillGemm gemm :
           {PrefillGemm::kF16, PrefillGemm::kF32, PrefillGemm::kDp4a, PrefillGemm::kFp8}) {
        for (const bool exact : {false, true}) {
          if (exact && gemm != PrefillGemm::kF32) {
            continue;
          }
          const std::string which =
              fmt::format("{}, {}, {}, exact {}", name, prefill_path_name(path),
                          prefill_gemm_name(gemm), exact);
          test::CudaDouble cuda;
          const size_t held_before = device_bytes_held();
          CudaBackend backend(model, {.context = 600,
                                      .prefill_chunk = 256,
                                      .max_logit_rows = 3,
                                      .exact = exact,
                                      .graphs = false,
                                      .prefill_gemm = gemm,
                                      .prefill_path = path});
          fill(backend);
          const MemoryPlan& memory = backend.decision().memory;
          EXPECT_EQ(device_bytes_held() - held_before, memory.asked_bytes()) << which;
          EXPECT_GE(memory.planned_bytes(), memory.asked_bytes()) << which;
          EXPECT_EQ(memory.bytes(MemoryUse::kHalfWeights) > 0,
                    path == PrefillPath::kBatched && scales_rows(gemm))
              << which;
          EXPECT_EQ(backend.max_rows(), path == PrefillPath::kSerial ? 1 : 256) << which;
          const auto facts = prefill_facts(backend);
          ASSERT_TRUE(facts) << which;
          EXPECT_EQ(facts->path, prefill_path_name(path)) << which;
          EXPECT_EQ(facts->chunk, backend.max_rows()) << which;
          const bool refused = gemm == PrefillGemm::kFp8 && model.desc().attention.qk_norm;
          const PrefillGemm ran = refused ? PrefillGemm::kF16 : gemm;
          EXPECT_EQ(backend.decision().gemm, ran) << which;
          const auto products = prefill_gemm_facts(backend);
          EXPECT_EQ(products->requested, prefill_gemm_name(gemm)) << which;
          EXPECT_EQ(products->ran == prefill_gemm_name(ran) || ran == PrefillGemm::kDp4a, true)
              << which << ": " << products->ran;
          EXPECT_EQ(products->reason.find("[#3413]") != std::string::npos,
                    refused && path != PrefillPath::kSerial)
              << which << ": " << products->reason;
          EXPECT_EQ(cuda.count("cublasLtMatmul") > 0,
                    ran == PrefillGemm::kFp8 && path != PrefillPath::kSerial)
              << which;
        }
      }
    }
  }
}

// The 8-bit weights take half of the 16-bit ones: 1 byte an element in the seed's sum, too.
TEST_F(MemoryPlanTest, CountsABytePerWeightOfFp8) {
  const Model model(test::open_gguf(test::model_fixture("tiny-qwen2-legacy")));
  const Plan plan = build_plan(model);
  const CudaBackendOptions options{.context = 600, .prefill_gemm = PrefillGemm::kF16};
  const CardFacts card = {.free_bytes = 24 * kCardGiB, .total_bytes = 24 * kCardGiB};
  const auto decide = [&](const FitEnvironment& environment, CudaBackendOptions with) {
    return decide_prefill(plan, with, environment, card);
  };
  const FitEnvironment asked{.fp8_prefill = "1"};
  const PrefillDecision f16 = decide({}, options), fp8 = decide(asked, options);
  EXPECT_EQ(f16.gemm, PrefillGemm::kF16);
  EXPECT_EQ(fp8.gemm, PrefillGemm::kFp8);
  EXPECT_EQ(fp8.requested, PrefillGemm::kFp8);
  EXPECT_EQ(fp8.gemm_reason, "");
  EXPECT_NE(fp8.profile.precision_line().find("FP8 (E4M3)"), std::string::npos);
  EXPECT_EQ(2 * fp8.need.cache_bytes, f16.need.cache_bytes);
  const uint64_t pad_bytes = 256 * 4 * static_cast<uint64_t>(model.desc().n_layers);
  EXPECT_NEAR(static_cast<double>(2 * fp8.memory.bytes(MemoryUse::kHalfWeights)),
              static_cast<double>(f16.memory.bytes(MemoryUse::kHalfWeights)),
              static_cast<double>(pad_bytes));
  // What takes FP8 back, each in one line.
  CudaBackendOptions off = options, exact = options, dp4a = options;
  off.fp8_prefill_off = true;
  exact.exact = true;
  dp4a.prefill_gemm = PrefillGemm::kDp4a;
  EXPECT_EQ(decide(asked, off).gemm, PrefillGemm::kF16);
  EXPECT_EQ(decide(asked, off).requested, PrefillGemm::kF16);
  EXPECT_EQ(decide(asked, off).profile.refusal, "");
  EXPECT_EQ(decide(asked, exact).gemm, PrefillGemm::kF32);
  EXPECT_EQ(decide(asked, exact).profile.refusal,
            "FP8_PREFILL=1 is refused: exact mode multiplies in f32");
  EXPECT_EQ(decide(asked, dp4a).gemm, PrefillGemm::kDp4a);
  EXPECT_EQ(decide(asked, dp4a).requested, PrefillGemm::kFp8);
  EXPECT_EQ(decide(asked, dp4a).gemm_reason,
            "FP8_PREFILL=1 is refused: dp4a products were asked for");
  for (const char* other : {"0", "", "2"}) {
    EXPECT_EQ(decide({.fp8_prefill = other}, options).gemm, PrefillGemm::kF16) << other;
    EXPECT_EQ(decide({.fp8_prefill = other}, options).requested, PrefillGemm::kF16) << other;
  }
  EXPECT_EQ(decide_prefill(plan, options, asked, {.compute_capability = 86}).gemm,
            PrefillGemm::kF16);
}

TEST_F(MemoryPlanTest, RoundsAsTheDriver) {
  MemoryPlan memory;
  memory.add(MemoryUse::kWorkspace, 0);
  EXPECT_EQ(memory.planned_bytes(), 0U);
  memory.add(MemoryUse::kWorkspace, 1);
  memory.add(MemoryUse::kKv, 513);
  EXPECT_EQ(memory.planned_bytes(), 2U << 20);
  memory.add(MemoryUse::kWeights, 1U << 20);
  memory.add(MemoryUse::kWeights, (2U << 20) + 1);
  EXPECT_EQ(memory.planned_bytes(), (2U + 2U + 4U) << 20);
  EXPECT_EQ(memory.asked_bytes(), 514U + (3U << 20) + 1);
}

Model sparse_model(const test::DenseShape& shape, const test::TempFolder& folder) {
  test::dense_writer(shape).write_sparse(folder / "model.gguf");
  return Model(test::open_gguf(folder / "model.gguf"));
}

CardFacts card_of(uint64_t vram_bytes) {
  return {.free_bytes = free_bytes_of_card(vram_bytes), .total_bytes = vram_bytes};
}

TEST_F(MemoryPlanTest, StreamsTheSeedsLargerModelOnItsCard) {
  const test::TempFolder folder;
  const Model model = sparse_model(test::kQwen3Large, folder);
  const Plan plan = build_plan(model);
  const CudaBackendOptions options{.context = 2048, .prefill_gemm = PrefillGemm::kF16};
  const PrefillDecision decision = decide_prefill(plan, options, {}, card_of(24 * kCardGiB));
  EXPECT_EQ(decision.choice.path, PrefillPath::kStreamed) << decision.choice.reason;
  EXPECT_EQ(decision.chunk, 2048);
  EXPECT_EQ(decision.choice.line.find("[#3715] streamed prefill: the FP16 batched prefill needs "),
            0U)
      << decision.choice.line;
  EXPECT_EQ(decision.refusal, "");
  EXPECT_EQ(decision.memory.bytes(MemoryUse::kHalfWeights), 0U);
  EXPECT_LE(decision.memory.planned_bytes(), decision.free_bytes);
  // A large card that is told to be that one decides alike.
  CudaBackendOptions capped = options;
  capped.vram_bytes = 24 * kCardGiB;
  const PrefillDecision same = decide_prefill(plan, capped, {}, card_of(141 * kCardGiB));
  EXPECT_EQ(same.choice.line, decision.choice.line);
  EXPECT_EQ(same.free_bytes, decision.free_bytes);
  // Without the cap there is room.
  EXPECT_EQ(decide_prefill(plan, options, {}, card_of(141 * kCardGiB)).choice.path,
            PrefillPath::kBatched);
  // The variable overrides both ways, and says nothing of memory.
  const PrefillDecision zero =
      decide_prefill(plan, options, {.batched_prefill = "0"}, card_of(24 * kCardGiB));
  EXPECT_EQ(zero.choice.path, PrefillPath::kSerial);
  EXPECT_EQ(zero.choice.line, "");
  EXPECT_EQ(zero.chunk, 1);
  EXPECT_EQ(
      decide_prefill(plan, options, {.batched_prefill = "1"}, card_of(24 * kCardGiB)).choice.path,
      PrefillPath::kBatched);
}

TEST_F(MemoryPlanTest, BatchesTheSeedsSmallerModelWithItsLongPrompt) {
  const test::TempFolder folder;
  const Model model = sparse_model(test::kQwen3Small, folder);
  const PrefillDecision decision =
      decide_prefill(build_plan(model), {.context = 20'033, .prefill_gemm = PrefillGemm::kF16}, {},
                     card_of(24 * kCardGiB));
  EXPECT_EQ(decision.choice.path, PrefillPath::kBatched) << decision.choice.reason;
  EXPECT_EQ(decision.choice.line, "");
  EXPECT_GT(decision.memory.bytes(MemoryUse::kHalfWeights), uint64_t{2'800'000'000});
}

TEST_F(MemoryPlanTest, TakesLessAtATimeThenOneTokenThenRefuses) {
  const test::TempFolder folder;
  const Model model = sparse_model(test::kQwen3Large, folder);
  const Plan plan = build_plan(model);
  const CudaBackendOptions options{.context = 4096, .prefill_gemm = PrefillGemm::kF16};
  const auto decide = [&](uint64_t free_bytes) {
    return decide_prefill(plan, options, {},
                          {.free_bytes = free_bytes, .total_bytes = 24 * kCardGiB});
  };
  const CardFacts card{.free_bytes = 24 * kCardGiB, .total_bytes = 24 * kCardGiB};
  const auto planned = [&](PrefillPath path, int64_t chunk) {
    return memory_plan(plan, options, PrefillGemm::kF16, card, path, chunk).planned_bytes();
  };
  for (const int64_t chunk : {2048, 512, 128}) {
    const PrefillDecision decision = decide(planned(PrefillPath::kStreamed, chunk));
    EXPECT_EQ(decision.choice.path, PrefillPath::kStreamed);
    EXPECT_EQ(decision.chunk, chunk);
    EXPECT_EQ(decision.refusal, "");
  }
  const PrefillDecision serial = decide(planned(PrefillPath::kStreamed, 128) - 1);
  EXPECT_EQ(serial.choice.path, PrefillPath::kSerial);
  EXPECT_EQ(serial.refusal, "");
  const PrefillDecision last = decide(planned(PrefillPath::kSerial, 1));
  EXPECT_EQ(last.refusal, "");
  const PrefillDecision refused = decide(planned(PrefillPath::kSerial, 1) - 1);
  EXPECT_NE(refused.refusal.find("--context"), std::string::npos) << refused.refusal;
  EXPECT_NE(refused.refusal.find("is in use"), std::string::npos) << refused.refusal;
  EXPECT_EQ(decide_prefill(plan, options, {}, {.free_bytes = kCardGiB, .total_bytes = kCardGiB})
                .refusal.find("is in use"),
            std::string::npos);
}

TEST_F(MemoryPlanTest, FindsTheLargestContext) {
  const test::TempFolder folder;
  const Model model = sparse_model(test::kQwen3Large, folder);
  const Plan plan = build_plan(model);
  const CudaBackendOptions options{.prefill_gemm = PrefillGemm::kF16};
  EXPECT_EQ(largest_context(plan, options, {}, card_of(24 * kCardGiB)), 40'960);
  EXPECT_EQ(largest_context(plan, options, {}, card_of(4 * kCardGiB)), 0);
  const int64_t found = largest_context(plan, options, {}, card_of(8 * kCardGiB));
  ASSERT_GT(found, 0);
  ASSERT_LT(found, 40'960);
  CudaBackendOptions at = options;
  at.context = found;
  EXPECT_EQ(decide_prefill(plan, at, {}, card_of(8 * kCardGiB)).refusal, "");
  ++at.context;
  EXPECT_NE(decide_prefill(plan, at, {}, card_of(8 * kCardGiB)).refusal, "");
}

TEST_F(MemoryPlanTest, IsRefusedBeforeAnythingIsAllocated) {
  const std::vector<std::byte> image = uniform_image("tiny-qwen3-iqmix", test::kTypeMxfp4);
  const Model model(test::open_gguf_image(image));
  test::CudaDouble cuda;
  cuda.free_bytes = size_t{1} << 20;
  test::expect_error(ErrorCode::kBackendUnavailable, "GPU memory",
                     [&] { CudaBackend(model, {.context = 64}); });
  EXPECT_EQ(cuda.count("cudaMalloc"), 0);
  EXPECT_TRUE(cuda.alive().empty());
  // Little, but enough a token at a time.
  cuda.free_bytes = size_t{40} << 20;
  CudaBackend backend(model, {.context = 64, .prefill_gemm = PrefillGemm::kF16});
  EXPECT_EQ(prefill_facts(backend)->path, "serial");
  EXPECT_EQ(backend.projection(), nullptr);
  fill(backend);
}

}  // namespace
}  // namespace apr::cuda
