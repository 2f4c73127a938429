// Prefill products of few tokens on the GPU (matvec_rows, small_gemm) against f64 within derived
// bounds, on both sides of the limits between the tiers; and whole prefills there.
#include <gtest/gtest.h>

#include <deque>

#include "cuda/backend.h"
#include "cuda/launch_matvec.h"
#include "matvec_rows_layout.cuh"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/gpu.h"
#include "support/open_gguf.h"
#include "support/tier_problem.h"

namespace apr::cuda {
namespace {

using test::MoeStack;

constexpr int64_t kTokenCounts[] = {1, 2, 3, 7, 8, 9, 16, 17, 32, 33, 63, 64, 65, 127, 128, 129};
constexpr auto kOfOurKernels = std::span(kTokenCounts).first(std::size(kTokenCounts) - 1);
constexpr int64_t kMostTokens = 129;
using test::kGuard;

Weight weight_of(const MoeStack& matrix) {
  Weight weight;
  weight.name = fmt::format("{} [{}, {}]", matrix.type->name, matrix.n_rows, matrix.n_cols);
  weight.type = matrix.type;
  weight.n_rows = matrix.n_rows;
  weight.n_cols = matrix.n_cols;
  weight.shape = {matrix.n_rows, matrix.n_cols};
  weight.row_bytes = matrix.type->row_bytes(matrix.n_cols);
  weight.data = matrix.raw.data();
  weight.size_bytes = weight.n_rows * weight.row_bytes;
  return weight;
}

// Matrices on the device and a Projection for them in each store.
class Products {
 public:
  explicit Products(const std::deque<MoeStack>& matrices)
      : device_(use_device(0)), stream_(create_stream()) {
    for (const MoeStack& matrix : matrices) {
      weights_.push_back(weight_of(matrix));
    }
    std::vector<KernelRow> rows;
    for (const KernelRow& row : kernel_table()) {
      const bool of_type =
          std::any_of(weights_.begin(), weights_.end(),
                      [&](const Weight& weight) { return row.quant_type == weight.type->name; }) &&
          (row.name.starts_with("absmax.") || row.name.starts_with("small_gemm.") ||
           row.name.starts_with("matvec_rows.") || row.name.ends_with(".planes.f16"));
      if (runs_on(row, device_.architecture) && (of_type || row.file == "scale_rows.cu")) {
        rows.push_back(row);
      }
    }
    KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
    kernels_ = std::make_unique<KernelLibrary>(
        compiler, rows, device_.architecture,
        static_cast<int64_t>(device_.shared_bytes_per_block) - kStaticSharedBytes);
    on_device_ = std::make_unique<DeviceWeights>(weights_);
    std::vector<ProjectionGroup> groups;
    for (size_t idx = 0; idx < weights_.size(); ++idx) {
      groups.push_back({static_cast<int>(idx), true, {&weights_[idx]}});
    }
    for (const HalfStore store : {HalfStore::kCached, HalfStore::kStreamed}) {
      Projection::Options options;
      options.max_rows = kMostTokens;
      options.store = {store, store == HalfStore::kCached ? "" : "a test wants it"};
      options.few_tokens = FewTokensUse::kWherePossible;
      projections_.push_back(
          std::make_unique<Projection>(*kernels_, stream_, device_, *on_device_, groups, options));
    }
  }
  const DeviceFacts& device() const { return device_; }
  Projection& projection(HalfStore store) {
    return *projections_[store == HalfStore::kCached ? 0 : 1];
  }
  const Weight& weight(size_t idx) const { return weights_[idx]; }

 private:
  DeviceFacts device_;
  std::vector<Weight> weights_;
  Stream stream_;
  std::unique_ptr<KernelLibrary> kernels_;
  std::unique_ptr<DeviceWeights> on_device_;
  std::vector<std::unique_ptr<Projection>> projections_;
};

// All products of one matrix with these numbers of tokens.
void check(Products& products, size_t idx, const MoeStack& matrix, HalfStore store,
           std::span<const int64_t> token_counts) {
  std::mt19937 random(3);
  const std::vector<float> x = test::tier_x(kMostTokens, matrix.n_cols, random);
  std::vector<test::Bounded> exact_w, rounded_w;  // [token, row]
  for (int64_t token = 0; token < kMostTokens; ++token) {
    for (int64_t row = 0; row < matrix.n_rows; ++row) {
      const float* of_token = x.data() + token * matrix.n_cols;
      exact_w.push_back(test::tier_product(matrix, row, of_token, true));
      rounded_w.push_back(test::tier_product(matrix, row, of_token, false));
    }
  }
  const DeviceBuffer x_device = test::to_device<float>(x);
  const int64_t ldc = matrix.n_rows + 5;
  for (const int64_t n_tokens : token_counts) {
    SCOPED_TRACE(fmt::format("{}, {}, {} tokens, seed 3", products.weight(idx).name,
                             store == HalfStore::kCached ? "kept" : "streamed", n_tokens));
    const bool exact = n_tokens <= kMostMatvecRowsTokens;  // weights are
    std::vector<float> first;
    for (int run = 0; run < 3; ++run) {
      std::vector<float> y(static_cast<size_t>((n_tokens + 1) * ldc), kGuard);
      const DeviceBuffer y_device = test::to_device<float>(y);
      products.projection(store).project({&products.weight(idx), nullptr, x_device.as<float>(),
                                          y_device.as<float>(), n_tokens, ldc});
      y = test::to_host<float>(y_device);
      if (run > 0) {
        ASSERT_EQ(std::memcmp(y.data(), first.data(), y.size() * 4), 0) << "run " << run;
        continue;
      }
      first = y;
      for (int64_t token = 0; token <= n_tokens; ++token) {
        for (int64_t row = 0; row < ldc; ++row) {
          const float found = y[static_cast<size_t>(token * ldc + row)];
          if (token == n_tokens || row >= matrix.n_rows) {
            ASSERT_EQ(found, kGuard) << "token " << token << ", column " << row;
            continue;
          }
          const test::Bounded& wanted =
              (exact ? exact_w : rounded_w)[static_cast<size_t>(token * matrix.n_rows + row)];
          ASSERT_LE(std::abs(found - wanted.value), wanted.bound)
              << "token " << token << ", row " << row << ": " << found << ", reference "
              << wanted.value;
        }
      }
    }
  }
}

TEST(GpuTier, ProductsOfEveryTypeAreWithinTheirBound) {
  APR_NEED_GPU();
  std::mt19937 random(1);
  std::deque<MoeStack> matrices;
  for (const QuantType& type : quant_types()) {
    if (type.block_elems > 1) {
      matrices.emplace_back(type, 1, 80, 768, random);
    }
  }
  Products products(matrices);
  for (size_t idx = 0; idx < matrices.size(); ++idx) {
    check(products, idx, matrices[idx], HalfStore::kCached, kTokenCounts);
  }
}

// Tails of rows and columns, one unit and many, tiles that several blocks share and that none does.
// Without the library's kernels: compute-sanitizer's racecheck cannot run them.
TEST(GpuTier, ProductsOfEveryShapeAreWithinTheirBound) {
  APR_NEED_GPU();
  std::mt19937 random(2);
  std::deque<MoeStack> matrices;
  for (const auto& [type, n_rows, n_cols] : {std::tuple{"Q4_K", 16, 256},
                                             {"Q4_K", 1024, 1024},
                                             {"Q4_K", 65, 4096},
                                             {"Q6_K", 300, 1536},
                                             {"Q8_0", 17, 32},
                                             {"Q8_0", 272, 96},
                                             {"Q5_1", 130, 352},
                                             {"IQ4_NL", 512, 2080},
                                             {"Q2_K", 40, 2048},
                                             {"Q8_0", 9000, 64}}) {
    matrices.emplace_back(*find_quant_type(type), 1, n_rows, n_cols, random);
  }
  Products products(matrices);
  for (size_t idx = 0; idx < matrices.size(); ++idx) {
    for (const HalfStore store : {HalfStore::kCached, HalfStore::kStreamed}) {
      check(products, idx, matrices[idx], store, kOfOurKernels);
    }
  }
}

class GpuTierPrefill : public ::testing::TestWithParam<const char*> {};

// By the rule of default mode, on both sides of each limit, kept and streamed; q, k and v and gate
// and up of one type are one launch.
TEST_P(GpuTierPrefill, LogitsAreNearThoseOfExactMode) {
  APR_NEED_GPU();
  const Model model(test::open_gguf(test::model_fixture(GetParam())));
  const auto vocab = static_cast<size_t>(model.desc().vocab_rows);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kMostTokens; ++id) {
    ids.push_back((id * 37 + 11) % static_cast<TokenId>(model.desc().n_tokens));
  }
  const auto prefill = [&](CudaBackend& backend, int64_t n_tokens) {
    backend.reset();
    const std::vector<int64_t> rows = {0, n_tokens - 1};
    std::vector<float> logits(2 * vocab);
    backend.forward(std::span(ids).first(static_cast<size_t>(n_tokens)), rows, logits, nullptr);
    return logits;
  };
  CudaBackendOptions options;
  options.context = 256;
  options.max_logit_rows = 2;
  options.exact = true;
  CudaBackend exact(model, options);
  options.exact = false;
  options.few_tokens_always = true;
  for (const PrefillPath path : {PrefillPath::kBatched, PrefillPath::kStreamed}) {
    options.prefill_path = path;
    CudaBackend backend(model, options);
    EXPECT_EQ(prefill_gemm_facts(backend)->tier,
              "matvec_rows to 16 tokens, small_gemm to 128, cuBLAS beyond");
    for (const int64_t n_tokens : {2, 3, 8, 9, 16, 17, 64, 65, 128, 129}) {
      SCOPED_TRACE(fmt::format("{} tokens, {}", n_tokens, prefill_path_name(path)));
      const std::vector<float> wanted = prefill(exact, n_tokens),
                               found = prefill(backend, n_tokens);
      for (const size_t row : {size_t{0}, size_t{1}}) {
        EXPECT_GE(test::cosine(std::span(found).subspan(row * vocab, vocab),
                               std::span(wanted).subspan(row * vocab, vocab)),
                  0.9999);
      }
      EXPECT_EQ(prefill(backend, n_tokens), found) << "the same again";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTierPrefill,
                         ::testing::Values("tiny-qwen2-legacy", "tiny-qwen3-kmix",
                                           "tiny-qwen3-iqmix"),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr::cuda
