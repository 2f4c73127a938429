// Prefill projections over the test double: what is multiplied with what, what is made how often,
// and what each failing call leaves behind.
#include "cuda/projection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "apr/error.h"
#include "support/expect_error.h"
#include "support/projection_on_fakes.h"

namespace apr::cuda {
namespace {

constexpr uint64_t kWorkspaceGiB = uint64_t{1} << 30;

TEST_F(ProjectionOnFakes, MakesEach16BitMatrixOnceAndMultipliesGroupsAtOnce) {
  make(PrefillGemm::kF16);
  EXPECT_EQ(projection_->half_store(), HalfStore::kCached);
  EXPECT_EQ(projection_->report().ran, PrefillGemm::kF16);
  EXPECT_EQ(projection_->report().reason, "");
  const int64_t n_layers = model_.desc().n_layers;
  EXPECT_EQ(total(projection_->dequant_launches(), "dequant."), 7 * n_layers);
  EXPECT_EQ(total(projection_->dequant_launches(), "absmax."), 7 * n_layers);

  run_chunk();
  // q + k + v, output, gate + up, down; and the head.
  ASSERT_EQ(gemms.size(), static_cast<size_t>(4 * n_layers + 1));
  const AttentionDesc& attn = model_.desc().attention;
  EXPECT_EQ(gemms[0].m, attn.q_dim() + 2 * attn.kv_dim());
  EXPECT_EQ(gemms[0].n, kRows);
  EXPECT_EQ(gemms[0].k, model_.desc().model_dim);
  EXPECT_EQ(gemms[0].ldc, gemms[0].m);
  EXPECT_EQ(gemms[2].m, 2 * model_.desc().ffn_dim);
  for (const Gemm& gemm : gemms) {
    EXPECT_EQ(gemm.type, CUDA_R_16F);
    EXPECT_EQ(gemm.compute, CUBLAS_COMPUTE_32F);
  }

  // A second chunk makes the head's tile alone, whose matrix is never kept.
  const Dequantizer::Launches before = projection_->dequant_launches();
  run_chunk();
  int64_t more = 0;
  for (const auto& [name, count] : projection_->dequant_launches()) {
    const auto found = before.find(name);
    more += count - (found == before.end() ? 0 : found->second);
  }
  EXPECT_EQ(more, 1);
}

TEST_F(ProjectionOnFakes, StreamsWhereLessThanAGibibyteWouldStayFree) {
  plan_ = build_plan(model_);
  cuda_->free_bytes = kWorkspaceGiB + cache_bytes() - 1;
  set_log_level(LogLevel::kNormal);
  ::testing::internal::CaptureStderr();
  make(PrefillGemm::kF16);
  run_chunk();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("prefill: 16-bit weights are made again for each chunk"), std::string::npos);
  set_log_level(LogLevel::kQuiet);
  gemms.clear();
  make_projection(PrefillGemm::kF16);
  EXPECT_EQ(projection_->half_store(), HalfStore::kStreamed);
  EXPECT_EQ(projection_->report().ran, PrefillGemm::kF16);
  EXPECT_NE(projection_->report().reason.find("do not fit"), std::string::npos);
  EXPECT_EQ(total(projection_->dequant_launches(), "dequant."), 0);

  const int64_t n_layers = model_.desc().n_layers;
  for (int chunk = 1; chunk <= 2; ++chunk) {
    run_chunk();
    EXPECT_EQ(total(projection_->dequant_launches(), "dequant."), chunk * (7 * n_layers + 1));
    EXPECT_EQ(total(projection_->dequant_launches(), "absmax."), 7 * n_layers + 1);
  }
  EXPECT_EQ(gemms.size(), static_cast<size_t>(2 * (7 * n_layers + 1)));
  // Every product reads the one scratch.
  for (const Gemm& gemm : gemms) {
    EXPECT_EQ(gemm.a, gemms[0].a);
  }
  // One byte more is enough; groups are padded to 256 bytes each.
  cuda_->free_bytes = kWorkspaceGiB + cache_bytes() + 256 * static_cast<uint64_t>(4 * n_layers);
  make_projection(PrefillGemm::kF16);
  EXPECT_EQ(projection_->half_store(), HalfStore::kCached);
  // Unless others will take more than that.
  make_projection(PrefillGemm::kF16, false, 1 << 20);
  EXPECT_EQ(projection_->half_store(), HalfStore::kStreamed);
  make_projection(PrefillGemm::kF16, false, UINT64_MAX);
  EXPECT_EQ(projection_->half_store(), HalfStore::kStreamed);
}

// Memory that runs out at any layer drops all of the cache; the next call streams.
TEST_F(ProjectionOnFakes, DropsTheWholeCacheWhenMemoryRunsOutInTheMiddle) {
  plan_ = build_plan(model_);
  cuda_->free_bytes = 0;
  make(PrefillGemm::kF16);
  projection_.reset();
  const size_t before = cuda_->alive().count("device memory");
  make_projection(PrefillGemm::kF16);
  const size_t streamed = cuda_->alive().count("device memory") - before;
  projection_.reset();

  cuda_->free_bytes = size_t{1} << 36;
  int n_dropped = 0;
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 2000);
    cuda_->fail_call(n);
    try {
      make_projection(PrefillGemm::kF16);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(cuda_->failed_call()), std::string::npos);
      projection_.reset();
    }
    const bool reached = !cuda_->failed_call().empty();
    cuda_->fail_call(-1);
    EXPECT_EQ(cuda_->violations(), std::vector<std::string>{});
    if (!reached) {
      ASSERT_NE(projection_, nullptr);
      EXPECT_EQ(projection_->half_store(), HalfStore::kCached);
      break;
    }
    if (projection_ == nullptr) {
      EXPECT_EQ(cuda_->alive().count("device memory"), before) << "a throwing constructor leaks";
      continue;
    }
    EXPECT_EQ(projection_->half_store(), HalfStore::kStreamed);
    EXPECT_NE(projection_->report().reason, "");
    EXPECT_EQ(cuda_->alive().count("device memory"), before + streamed);
    gemms.clear();
    run_chunk();
    EXPECT_EQ(gemms.size(), static_cast<size_t>(7 * model_.desc().n_layers + 1));
    projection_.reset();
    ++n_dropped;
  }
  // Allocations of the layers, and two launches a matrix.
  EXPECT_EQ(n_dropped, 15 * model_.desc().n_layers);
}

TEST_F(ProjectionOnFakes, MultipliesE4m3ByCublasLtAndTheHeadInF16) {
  make(PrefillGemm::kFp8);
  EXPECT_EQ(projection_->half_store(), HalfStore::kCached);
  EXPECT_EQ(projection_->report().ran, PrefillGemm::kFp8);
  EXPECT_EQ(projection_->report().reason, "");
  EXPECT_EQ(lt_attributes, (std::map<cublasLtMatmulDescAttributes_t, int>{
                               {CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T},
                               {CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N},
                               {CUBLASLT_MATMUL_DESC_FAST_ACCUM, 0}}));
  const int64_t n_layers = model_.desc().n_layers;
  int64_t n_e4m3 = 0;
  for (const auto& [name, count] : projection_->dequant_launches()) {
    n_e4m3 += name.ends_with(".e4m3") ? count : 0;
  }
  EXPECT_EQ(n_e4m3, 7 * n_layers);

  run_chunk();
  ASSERT_EQ(gemms.size(), 1U);  // the head
  EXPECT_EQ(gemms[0].type, CUDA_R_16F);
  ASSERT_EQ(lt_products.size(), static_cast<size_t>(4 * n_layers));
  const AttentionDesc& attn = model_.desc().attention;
  const int64_t qkv = attn.q_dim() + 2 * attn.kv_dim(), dim = model_.desc().model_dim;
  // Eight rows are padded to sixteen.
  EXPECT_EQ(lt_products[0], (std::array<Layout, 3>{Layout{CUDA_R_8F_E4M3, dim, qkv, dim},
                                                   Layout{CUDA_R_8F_E4M3, dim, 16, dim},
                                                   Layout{CUDA_R_32F, qkv, 16, qkv}}));
  // An algorithm is looked for once a shape, not once a layer or chunk.
  const int n_looked = cuda_->count("cublasLtMatmulAlgoGetHeuristic");
  EXPECT_EQ(n_looked, 4);
  run_chunk();
  EXPECT_EQ(lt_products.size(), static_cast<size_t>(8 * n_layers));
  EXPECT_EQ(cuda_->count("cublasLtMatmulAlgoGetHeuristic"), n_looked);

  // Streamed: each matrix is made again for each product, in tiles of sixteen rows at least.
  cuda_->free_bytes = 0;
  make_projection(PrefillGemm::kFp8);
  EXPECT_EQ(projection_->half_store(), HalfStore::kStreamed);
  EXPECT_NE(projection_->report().reason.find("8-bit weights of "), std::string::npos);
  lt_products.clear();
  run_chunk();
  EXPECT_EQ(lt_products.size(), static_cast<size_t>(7 * n_layers));
}

TEST_F(ProjectionOnFakes, RunsF16WhereAMatrixDoesNotTakeE4m3AndSaysSo) {
  make(PrefillGemm::kFp8);
  std::vector<ProjectionGroup> groups = projection_groups(exec_);
  Weight narrow = *groups[0].weights[0];
  narrow.n_rows -= 8;
  groups[0].weights[0] = &narrow;
  groups[0].e4m3 = false;
  DeviceFacts device;
  device.cc_major = 9;
  Projection::Options options{PrefillGemm::kFp8, false, kRows};
  options.store.store = HalfStore::kStreamed;  // nothing is made of the matrix that is not there
  const Projection projection(*kernels_, stream_, device, *weights_, groups, options);
  EXPECT_EQ(projection.report().ran, PrefillGemm::kFp8);
  EXPECT_EQ(projection.report().reason.find("f16 for 3 of "), 0U) << projection.report().reason;
  EXPECT_NE(projection.report().reason.find(", fp8 takes multiples of 16"), std::string::npos);
}

TEST_F(ProjectionOnFakes, NamesTheCallOfCublasLtThatFails) {
  make(PrefillGemm::kFp8);
  n_algorithms = 0;
  test::expect_error(ErrorCode::kBackendUnavailable, "has no E4M3 product of ",
                     [&] { run_chunk(); });
  n_algorithms = 1;
  std::set<std::string> named;
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 2000);
    projection_.reset();
    cuda_->fail_call(n);
    try {
      make_projection(PrefillGemm::kFp8);
      run_chunk();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(cuda_->failed_call()), std::string::npos);
    }
    const std::string failed = cuda_->failed_call();
    cuda_->fail_call(-1);
    EXPECT_EQ(cuda_->violations(), std::vector<std::string>{});
    if (failed.empty()) {
      break;
    }
    if (failed.starts_with("cublasLt")) {
      named.insert(failed);
    }
  }
  EXPECT_EQ(named, (std::set<std::string>{
                       "cublasLtCreate", "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic",
                       "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute",
                       "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
                       "cublasLtMatrixLayoutCreate"}));
}

TEST_F(ProjectionOnFakes, MultipliesF32InPlaceAndPedantically) {
  make(PrefillGemm::kF32);
  EXPECT_EQ(projection_->report().ran, PrefillGemm::kF32);
  run_chunk();
  ASSERT_EQ(gemms.size(), static_cast<size_t>(7 * model_.desc().n_layers + 1));
  int64_t n_f32 = 0;
  size_t idx = 0;
  for (const Op& op : plan_.ops) {
    if (op.kind != OpKind::kMatmul) {
      continue;
    }
    const Gemm& gemm = gemms[idx++];
    EXPECT_EQ(gemm.type, CUDA_R_32F);
    EXPECT_EQ(gemm.compute, CUBLAS_COMPUTE_32F_PEDANTIC);
    const bool in_place = gemm.a == weights_->matrix(*op.weights[0]).data;
    EXPECT_EQ(in_place, op.weights[0]->type->name == "F32") << op.name;
    n_f32 += in_place ? 1 : 0;
  }
  EXPECT_GT(n_f32, 0);
  EXPECT_EQ(total(projection_->dequant_launches(), "dequant."),
            7 * model_.desc().n_layers + 1 - n_f32);
  EXPECT_EQ(total(projection_->dequant_launches(), "dequant.F32"), 0);
  EXPECT_EQ(total(projection_->dequant_launches(), "absmax."), 0);
}

TEST_F(ProjectionOnFakes, ReportsWhatRan) {
  make(PrefillGemm::kF16, true);
  EXPECT_EQ(projection_->report().requested, PrefillGemm::kF16);
  EXPECT_EQ(projection_->report().ran, PrefillGemm::kF32);
  EXPECT_EQ(projection_->report().reason, "exact mode multiplies in f32");
  make(PrefillGemm::kDp4a);
  EXPECT_EQ(projection_->report().requested, PrefillGemm::kDp4a);
  int n_q4k = 0, n_all = 0;
  for (const Op& op : plan_.ops) {
    if (op.kind == OpKind::kMatmul) {
      ++n_all;
      n_q4k += op.weights[0]->type->name == "Q4_K" && op.weights[0]->n_cols % 256 == 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(projection_->report().ran, n_q4k > 0 ? PrefillGemm::kDp4a : PrefillGemm::kF32);
  EXPECT_NE(projection_->report().reason.find("f32 for " + std::to_string(n_all - n_q4k) + " of " +
                                              std::to_string(n_all) + " matrices: "),
            std::string::npos)
      << projection_->report().reason;
}

TEST_F(ProjectionOnFakes, RefusesNullsAndNarrowResults) {
  for (const PrefillGemm gemm :
       {PrefillGemm::kF16, PrefillGemm::kF32, PrefillGemm::kDp4a, PrefillGemm::kFp8}) {
    make(gemm);
    const Weight& weight = *plan_.ops.back().weights[0];  // the head: f16 in mode fp8
    float* data = reinterpret_cast<float*>(0x1000);
    const ProjectionArgs good{&weight, nullptr, data, data, 2, weight.n_rows};
    const std::string mode = prefill_gemm_name(gemm);
    const auto refuses = [&](ProjectionArgs args, const std::string& what) {
      cuda_->fail_call(0);  // the first call of CUDA, which must not come
      try {
        projection_->project(args);
        ADD_FAILURE() << "accepted: " << what;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInference);
        EXPECT_EQ(std::string(error.what()), what);
      }
      EXPECT_EQ(cuda_->failed_call(), "");
      cuda_->fail_call(-1);
    };
    const std::string name(weight.name);
    ProjectionArgs args = good;
    args.weight = nullptr;
    refuses(args, mode + " product of no weight: weight is null");
    args = good;
    args.x = nullptr;
    refuses(args, mode + " product of " + name + ": x is null");
    args = good;
    args.y = nullptr;
    refuses(args, mode + " product of " + name + ": y is null");
    args = good;
    args.ldc = weight.n_rows - 1;
    refuses(args, mode + " product of " + name + ": ldc is " + std::to_string(args.ldc) +
                      ", less than the " + std::to_string(weight.n_rows) + " rows of the matrix");
    EXPECT_NO_THROW(projection_->project(good));
    args = good;
    ++args.ldc;
    EXPECT_EQ(projection_->project(args), gemm == PrefillGemm::kDp4a  ? PrefillGemm::kF32
                                          : gemm == PrefillGemm::kFp8 ? PrefillGemm::kF16
                                                                      : gemm);
  }
}

}  // namespace
}  // namespace apr::cuda
