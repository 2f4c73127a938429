// Who multiplies few tokens of a prefill and in what shape; and, over the test double, what is
// launched.
#include "cuda/prefill_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/launch_matvec.h"
#include "cuda/projection.h"
#include "matvec_rows_layout.cuh"
#include "small_gemm_layout.cuh"
#include "support/cuda_double.h"
#include "support/model_variants.h"
#include "support/open_gguf.h"

namespace apr::cuda {
namespace {

constexpr int64_t kHopperShared = (227 - 5) << 10, kAdaShared = (99 - 5) << 10;

constexpr int64_t kOf8b[] = {4096}, kOfGateUp[] = {12288, 12288}, kTiny[] = {256};
constexpr int64_t kValues[] = {1024};

struct TierRow {
  const char* type;
  std::span<const int64_t> part_rows;
  int64_t n_tokens;
  HalfStore store;
  PrefillTier tier;
  const char* reason;
  bool tensor_cores = true;
  int64_t shared_bytes = kHopperShared;
  FewTokensUse use = FewTokensUse::kWhereFaster;
  bool few_registers = false;
  int64_t n_cols = 4096;
};

TEST(PrefillTier, DecodesBlocksForFewTokens) {
  using enum PrefillTier;
  using enum HalfStore;
  const char* longer = "decoding takes longer";
  const char* plain = "a plain type has nothing to decode";
  const TierRow rows[] = {
      {"Q4_K", kOfGateUp, 1, kCached, kMatvec, ""},
      {"Q4_K", kOfGateUp, 2, kCached, kMatvec, ""},
      {"Q4_K", kOfGateUp, 8, kCached, kMatvec, ""},
      {"Q4_K", kOfGateUp, 128, kCached, kLibrary, longer},
      {"Q4_K", kOfGateUp, 16, kStreamed, kMatvec, ""},
      {"Q4_K", kOfGateUp, 17, kStreamed, kFused, ""},
      {"Q4_K", kOfGateUp, 64, kStreamed, kFused, ""},
      {"Q4_K", kOfGateUp, 129, kStreamed, kLibrary, "many tokens"},
      {"Q8_0", kOf8b, 8, kCached, kMatvec, ""},
      {"Q8_0", kOf8b, 64, kCached, kLibrary, longer},
      {"IQ2_XXS", kOf8b, 8, kCached, kMatvec, ""},
      {"F16", kOf8b, 2, kCached, kLibrary, plain},
      {"BF16", kOf8b, 2, kStreamed, kLibrary, plain},
      {"F32", kOf8b, 2, kCached, kLibrary, plain},
      {"Q4_K", kOf8b, 2, kCached, kLibrary, "before sm_80 there are no tensor cores for it", false},
      {"Q4_K", kOf8b, 4, kStreamed, kMatvec, "", true, kAdaShared},
      {"Q4_K", kOf8b, 16, kStreamed, kFused, "", true, kAdaShared},
      {"Q8_0", kOf8b, 64, kStreamed, kLibrary, "too little shared memory", true, kAdaShared},
      {"Q4_K", kTiny, 128, kCached, kFused, "", true, kHopperShared, FewTokensUse::kWherePossible},
      {"Q4_K", kTiny, 16, kCached, kMatvec, "", true, kHopperShared, FewTokensUse::kWherePossible,
       true},
      {"Q4_K", kTiny, 17, kCached, kLibrary, "many tokens", true, kHopperShared,
       FewTokensUse::kWherePossible, true},
      {"Q4_K", kOf8b, 16, kCached, kLibrary, "too little shared memory", true, kAdaShared,
       FewTokensUse::kWherePossible, true},
      {"Q4_K", kTiny, 129, kCached, kLibrary, "many tokens", true, kHopperShared,
       FewTokensUse::kWherePossible},
      {"Q4_K", kOfGateUp, 1, kCached, kLibrary, "not wanted", true, kHopperShared,
       FewTokensUse::kNever},
      // A small product between others: cuBLAS would end their overlap.
      {"Q6_K", kValues, 2, kCached, kMatvec, "", true, kHopperShared, FewTokensUse::kWhereFaster,
       false, 1024},
      {"Q6_K", kValues, 17, kCached, kLibrary, longer, true, kHopperShared,
       FewTokensUse::kWhereFaster, false, 1024},
  };
  for (const TierRow& row : rows) {
    const TierChoice choice =
        choose_prefill_tier({{find_quant_type(row.type), row.part_rows, row.n_cols, row.n_tokens,
                              132, row.shared_bytes, 16},
                             row.store,
                             row.tensor_cores,
                             row.use,
                             row.few_registers});
    EXPECT_EQ(choice.tier, row.tier) << row.type << ", " << row.n_tokens << " tokens";
    EXPECT_EQ(choice.reason, row.reason) << row.type << ", " << row.n_tokens << " tokens";
  }
}

// What is taken fits in shared memory and in the room for splits; no block and no split is without
// work.
TEST(PrefillTier, LaunchesFit) {
  int n_fitting = 0, n_split = 0, n_matvec = 0, n_matvec_split = 0;
  for (const QuantType& type : quant_types()) {
    for (const int64_t shared_bytes : {kHopperShared, kAdaShared}) {
      for (const int64_t n_tokens : {1, 8, 9, 33, 64, 65, 128}) {
        for (const int n_sm : {1, 20, 132}) {
          for (const std::vector<int64_t>& part_rows :
               {std::vector<int64_t>{16}, {1024}, {4096, 1024, 1024}, {12288, 12288}, {151936}}) {
            for (const int64_t n_cols : {256, 4096, 12288}) {
              const TierProduct of{&type, part_rows, n_cols, n_tokens, n_sm, shared_bytes, 7};
              SCOPED_TRACE(std::string(type.name) + ", " + std::to_string(n_tokens) + " tokens, " +
                           std::to_string(part_rows[0]) + " rows, " + std::to_string(n_cols) +
                           " columns");
              const SmallGemmShape gemm = small_gemm_shape(of);
              if (type.block_elems > 1 && gemm.n_slots > 0) {
                ++n_fitting;
                n_split += gemm.n_splits > 1 ? 1 : 0;
                ASSERT_GE(gemm.n_slots, 2);
                ASSERT_LE(gemm.n_slots, 4);
                ASSERT_LE(gemm.shared_bytes, shared_bytes);
                ASSERT_GE(gemm.row_warps_log2, 2);
                ASSERT_LE(gemm.row_warps_log2, 3);
                ASSERT_GE(gemm.n_splits, 1);
                ASSERT_LE(gemm.n_splits, std::min<int64_t>(7, n_cols / 256));
                ASSERT_GE(gemm.n_blocks, 1U);
                ASSERT_LE(gemm.n_blocks, gemm.n_tiles * gemm.n_splits);
                ASSERT_EQ(gemm.n_token_tiles, static_cast<uint32_t>(n_tokens + 63) / 64);
              }
              const MatvecRowsShape matvec = matvec_rows_shape(of);
              if (matvec.n_col_warps > 0) {
                ++n_matvec;
                n_matvec_split += matvec.n_splits > 1 ? 1 : 0;
                ASSERT_GT(type.block_elems, 1);
                ASSERT_LE(n_tokens, kMostMatvecRowsTokens);
                ASSERT_LE(matvec.shared_bytes, shared_bytes);
                ASSERT_EQ(kMatvecWarps % matvec.n_col_warps, 0);
                ASSERT_GE(matvec.n_splits, 1);
                ASSERT_LE(matvec.n_splits, std::min<int64_t>(7, n_cols / 256));
                ASSERT_GE(matvec.n_blocks, 1U);
                ASSERT_LE(matvec.n_blocks, matvec.n_tiles);
                ASSERT_LE(matvec.n_blocks * matvec.n_splits,
                          std::max<int64_t>(n_sm, matvec.n_splits));
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(n_fitting, 1000);
  EXPECT_GT(n_split, 100);
  EXPECT_GT(n_matvec, 1000);
  EXPECT_GT(n_matvec_split, 100);
}

TEST(PrefillTier, IsDescribed) {
  Weight weight;
  weight.type = find_quant_type("F16");
  weight.n_rows = 24576;
  weight.n_cols = 4096;
  const ProjectionGroup group{0, true, {&weight}};
  TierCase of;
  of.product.n_sm = 132;
  of.product.shared_bytes = kHopperShared;
  EXPECT_EQ(describe_tiers({&group, 1}, of), "cuBLAS alone: nothing to decode");
  weight.type = find_quant_type("Q4_K");
  const std::string cached = describe_tiers({&group, 1}, of);
  EXPECT_TRUE(cached.starts_with("matvec_rows to ") && cached.ends_with(", cuBLAS beyond"))
      << cached;
  of.use = FewTokensUse::kWherePossible;
  EXPECT_EQ(describe_tiers({&group, 1}, of),
            "matvec_rows to 16 tokens, small_gemm to 128, cuBLAS beyond");
  of.tensor_cores = false;
  EXPECT_EQ(describe_tiers({&group, 1}, of),
            "cuBLAS alone: before sm_80 there are no tensor cores for it");
}

// By kernel, what a chunk launches.
std::map<CUfunction, int> launched;
int n_library = 0;

Api counting_api() {
  Api table = test::fake_api();
  table.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
    static uintptr_t n_functions = 0;
    *function = reinterpret_cast<CUfunction>(16 * ++n_functions);
    return CUDA_SUCCESS;
  };
  table.cuLaunchKernelEx = [](const CUlaunchConfig*, CUfunction kernel, void**, void**) {
    ++launched[kernel];
    return CUDA_SUCCESS;
  };
  table.cublasGemmEx_64 = [](cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t,
                             int64_t, const void*, const void*, cudaDataType, int64_t, const void*,
                             cudaDataType, int64_t, const void*, void*, cudaDataType, int64_t,
                             cublasComputeType_t, cublasGemmAlgo_t) {
    ++n_library;
    return CUBLAS_STATUS_SUCCESS;
  };
  return table;
}

// Neighbours of one type are one launch; what is not a block type, and more tokens, the library's.
TEST(PrefillTier, MultipliesNeighboursOfATypeAtOnce) {
  set_log_level(LogLevel::kQuiet);
  const Api table = counting_api();
  test::CudaDouble cuda(&table);
  test::GgufWriter writer =
      test::GgufWriter::copy_of(test::open_gguf(test::model_fixture("tiny-qwen3-kmix")));
  test::retype_tensor(writer.tensor("blk.1.ffn_up.weight"), test::kTypeF32);
  const std::vector<std::byte> image = writer.bytes();
  const Model model(test::open_gguf_image(image));
  const Plan plan = build_plan(model);
  constexpr int64_t kMaxRows = 200;
  const ExecPlan exec = lower(plan, {.backend = BackendKind::kCuda,
                                     .phase = Phase::kPrefill,
                                     .max_rows = kMaxRows,
                                     .f16_rows = true});
  DeviceFacts device;
  device.cc_major = 9;
  device.n_sm = 132;
  device.shared_bytes_per_block = 227 << 10;
  std::vector<KernelRow> rows;
  for (const KernelRow& row : kernel_table()) {
    if (!row.name.starts_with("attention") && !row.name.starts_with("matvec_mma") &&
        !row.name.starts_with("matvec_fma")) {
      rows.push_back(row);
    }
  }
  KernelCompiler compiler("");
  const KernelLibrary kernels(compiler, rows, "sm_90a");
  const Stream stream = create_stream();
  const DeviceWeights weights(model.weights());
  const std::vector<ProjectionGroup> groups = projection_groups(exec);
  for (const HalfStore store : {HalfStore::kCached, HalfStore::kStreamed}) {
    Projection::Options options;
    options.max_rows = kMaxRows;
    options.store = {store, ""};
    options.few_tokens = FewTokensUse::kWherePossible;
    Projection projection(kernels, stream, device, weights, groups, options);
    EXPECT_NE(projection.report().tier.find("matvec_rows to "), std::string::npos);
    constexpr int64_t kLimit = kMostFusedTokens;
    for (const int64_t n_tokens : {int64_t{2}, int64_t{16}, kLimit, kLimit + 1}) {
      launched.clear();
      n_library = 0;
      int n_fused = 0, n_left = 0;
      for (const Stage& stage : exec.stages) {
        if (stage.kernel != "project_attention" && !stage.kernel.starts_with("project")) {
          continue;
        }
        projection.multiply(exec, stage, reinterpret_cast<std::byte*>(0x10000), n_tokens);
        const QuantType* last = nullptr;
        for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
          const Op& op = plan.ops[static_cast<size_t>(op_idx)];
          if (op.kind == OpKind::kMatmul) {
            const QuantType* type = op.weights[0]->type;
            n_left += type->block_elems == 1 ? 1 : 0;
            n_fused += type->block_elems > 1 && type != last ? 1 : 0;
            last = type;
          }
        }
      }
      int n_small = 0;
      for (const KernelRow& row : rows) {
        const bool is_matvec = row.name.starts_with("matvec_rows.");
        if ((is_matvec || row.name.starts_with("small_gemm.")) &&
            launched.contains(kernels.find(row.name))) {
          EXPECT_EQ(is_matvec, n_tokens <= kMostMatvecRowsTokens) << row.name;
          n_small += launched.at(kernels.find(row.name));
        }
      }
      EXPECT_GT(n_left, 0);
      EXPECT_GT(n_fused, 4);
      EXPECT_EQ(n_small, n_tokens <= kLimit ? n_fused : 0) << n_tokens;
      if (n_tokens <= kLimit) {
        EXPECT_EQ(n_library, n_left);
      } else {
        EXPECT_GT(n_library, n_left);
      }
    }
  }
  set_log_level(LogLevel::kNormal);
}

}  // namespace
}  // namespace apr::cuda
