// Which products of a prefill small_gemm takes and in what shape; and, over the test double, what
// is launched.
#include "cuda/prefill_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/launch_matvec.h"
#include "cuda/projection.h"
#include "small_gemm_layout.cuh"
#include "support/cuda_double.h"
#include "support/model_variants.h"
#include "support/open_gguf.h"

namespace apr::cuda {
namespace {

constexpr int64_t kHopperShared = (227 - 5) << 10, kAdaShared = (99 - 5) << 10;

struct TierRow {
  const char* type;
  int64_t n_tokens;
  HalfStore store;
  bool tensor_cores;
  int64_t shared_bytes;
  PrefillTier tier;
  const char* reason;
};

TEST(PrefillTier, IsTheFusedOneForFewTokensOfABlockType) {
  using enum PrefillTier;
  using enum HalfStore;
  const char* many = "more tokens than decoding pays for";
  const char* shared = "too little shared memory";
  const TierRow rows[] = {
      {"Q4_K", 1, kCached, true, kHopperShared, kFused, ""},
      {"Q4_K", 2, kCached, true, kHopperShared, kFused, ""},
      {"Q4_K", 64, kCached, true, kHopperShared, kFused, ""},
      {"Q4_K", 65, kCached, true, kHopperShared, kLibrary, many},
      {"Q4_K", 128, kStreamed, true, kHopperShared, kFused, ""},
      {"Q4_K", 129, kStreamed, true, kHopperShared, kLibrary, many},
      {"Q8_0", 64, kCached, true, kHopperShared, kFused, ""},
      {"IQ2_XXS", 64, kCached, true, kHopperShared, kFused, ""},
      {"F16", 2, kCached, true, kHopperShared, kLibrary, "a plain type has nothing to decode"},
      {"BF16", 2, kStreamed, true, kHopperShared, kLibrary, "a plain type has nothing to decode"},
      {"F32", 2, kCached, true, kHopperShared, kLibrary, "a plain type has nothing to decode"},
      {"Q4_K", 2, kCached, false, kHopperShared, kLibrary,
       "before sm_80 there are no tensor cores for it"},
      {"Q4_K", 48, kCached, true, kAdaShared, kFused, ""},
      {"Q4_K", 64, kCached, true, kAdaShared, kLibrary, shared},
      {"Q8_0", 16, kCached, true, kAdaShared, kFused, ""},
      {"Q8_0", 32, kCached, true, kAdaShared, kLibrary, shared},
  };
  for (const TierRow& row : rows) {
    const TierChoice choice = choose_prefill_tier(
        {find_quant_type(row.type), row.n_tokens, row.store, row.tensor_cores, row.shared_bytes});
    EXPECT_EQ(choice.tier, row.tier) << row.type << ", " << row.n_tokens << " tokens";
    EXPECT_EQ(choice.reason, row.reason) << row.type << ", " << row.n_tokens << " tokens";
  }
}

// What is taken fits: in shared memory, in the scratch, and no block is without work.
TEST(PrefillTier, LaunchesFitWhatIsAllocated) {
  for (const QuantType& type : quant_types()) {
    for (const int64_t shared_bytes : {kHopperShared, kAdaShared}) {
      for (const int64_t n_tokens : {1, 8, 9, 33, 64, 65, 128}) {
        if (choose_prefill_tier({&type, n_tokens, HalfStore::kStreamed, true, shared_bytes}).tier ==
            PrefillTier::kLibrary) {
          continue;
        }
        for (const int n_sm : {1, 20, 132}) {
          for (const std::vector<int64_t>& part_rows :
               {std::vector<int64_t>{16}, {1024}, {4096, 1024, 1024}, {12288, 12288}, {151936}}) {
            for (const int64_t n_cols : {256, 4096, 12288}) {
              SCOPED_TRACE(std::string(type.name) + ", " + std::to_string(n_tokens) + " tokens, " +
                           std::to_string(part_rows[0]) + " rows, " + std::to_string(n_cols) +
                           " columns");
              const SmallGemmShape shape =
                  small_gemm_shape(type, part_rows, n_cols, n_tokens, n_sm, shared_bytes);
              ASSERT_GE(shape.n_slots, 2);
              ASSERT_LE(shape.n_slots, 4);
              ASSERT_LE(shape.shared_bytes, shared_bytes);
              ASSERT_GE(shape.row_warps_log2, 2);
              ASSERT_LE(shape.row_warps_log2, 3);
              ASSERT_GE(shape.n_blocks, 1U);
              ASSERT_LE(shape.n_blocks, shape.n_tiles * (n_cols / 256));
              ASSERT_EQ(shape.n_token_tiles, static_cast<uint32_t>(n_tokens + 63) / 64);
              std::vector<Weight> weights(part_rows.size());
              ProjectionGroup group;
              for (size_t part = 0; part < part_rows.size(); ++part) {
                weights[part].type = &type;
                weights[part].n_rows = part_rows[part];
                weights[part].n_cols = n_cols;
                group.weights.push_back(&weights[part]);
              }
              const SmallGemmSizes sizes = small_gemm_sizes({&group, 1}, true, n_sm);
              ASSERT_LE(uint64_t{2} * shape.n_blocks * shape.n_token_tiles * kSmallGemmRows *
                            kSmallGemmTokens * 4,
                        sizes.partials);
              ASSERT_LE(static_cast<uint64_t>(shape.n_tiles) * shape.n_token_tiles * 4,
                        sizes.arrived);
            }
          }
        }
      }
    }
  }
}

TEST(PrefillTier, TakesNoMemoryWhereNothingIsFused) {
  Weight weight;
  weight.type = find_quant_type("F16");
  weight.n_rows = 64;
  weight.n_cols = 256;
  const ProjectionGroup group{0, true, {&weight}};
  EXPECT_EQ(small_gemm_sizes({&group, 1}, true, 132).partials, 0U);
  EXPECT_EQ(describe_tiers({&group, 1}, HalfStore::kCached, true, kHopperShared),
            "cuBLAS alone: a plain type has nothing to decode");
  weight.type = find_quant_type("Q4_K");
  EXPECT_EQ(small_gemm_sizes({&group, 1}, false, 132).partials, 0U);
  EXPECT_GT(small_gemm_sizes({&group, 1}, true, 132).partials, 0U);
  EXPECT_EQ(describe_tiers({&group, 1}, HalfStore::kCached, true, kHopperShared),
            "small_gemm to 64 tokens, cuBLAS beyond");
  EXPECT_EQ(describe_tiers({&group, 1}, HalfStore::kStreamed, true, kHopperShared),
            "small_gemm to 128 tokens, cuBLAS beyond");
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
    if (!row.name.starts_with("attention") && !row.name.starts_with("matvec")) {
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
    options.small_gemm = true;
    Projection projection(kernels, stream, device, weights, groups, options);
    EXPECT_NE(projection.report().tier.find("small_gemm"), std::string::npos);
    const int64_t limit = store == HalfStore::kCached ? kMostFusedTokens : kMostFusedTokensStreamed;
    for (const int64_t n_tokens : {int64_t{2}, limit, limit + 1}) {
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
        if (row.name.starts_with("small_gemm.") && launched.contains(kernels.find(row.name))) {
          EXPECT_EQ(row.name.ends_with(".outside"), n_tokens <= kScaledOutsideTokens) << row.name;
          n_small += launched.at(kernels.find(row.name));
        }
      }
      EXPECT_GT(n_left, 0);
      EXPECT_GT(n_fused, 4);
      EXPECT_EQ(n_small, n_tokens <= limit ? n_fused : 0) << n_tokens;
      if (n_tokens <= limit) {
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
