// A Projection over the test double, which records the products that are asked for.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <set>

#include "base/log.h"
#include "cuda/projection.h"
#include "support/cuda_double.h"
#include "support/model_variants.h"
#include "support/open_gguf.h"

namespace apr::cuda {

constexpr int64_t kRows = 8;

struct Gemm {
  int64_t m, n, k, ldc;
  const void* a;
  cudaDataType type;
  cublasComputeType_t compute;
  bool operator==(const Gemm&) const = default;
};
inline std::vector<Gemm> gemms;

struct Layout {
  cudaDataType type;
  int64_t n_rows, n_cols, stride;
  bool operator==(const Layout&) const = default;
};
// Of cuBLASLt: layouts by handle, products by the layouts of a, b and d, attributes that were set.
inline std::map<const void*, Layout> layouts;
inline std::vector<std::array<Layout, 3>> lt_products;
inline std::map<cublasLtMatmulDescAttributes_t, int> lt_attributes;
inline int n_algorithms = 1;

inline void record_cublas_lt(Api& table) {
  static const Api fakes = test::fake_api();
  table.cublasLtMatrixLayoutCreate = [](cublasLtMatrixLayout_t* layout, cudaDataType type,
                                        uint64_t n_rows, uint64_t n_cols, int64_t stride) {
    const cublasStatus_t status =
        fakes.cublasLtMatrixLayoutCreate(layout, type, n_rows, n_cols, stride);
    layouts[*layout] = {type, static_cast<int64_t>(n_rows), static_cast<int64_t>(n_cols), stride};
    return status;
  };
  table.cublasLtMatmulDescSetAttribute = [](cublasLtMatmulDesc_t,
                                            cublasLtMatmulDescAttributes_t attribute,
                                            const void* value, size_t n_bytes) {
    int32_t number = 0;
    std::memcpy(&number, value, n_bytes);
    lt_attributes[attribute] = number;
    return CUBLAS_STATUS_SUCCESS;
  };
  table.cublasLtMatmulAlgoGetHeuristic =
      [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
         cublasLtMatmulHeuristicResult_t*, int* n_results) {
        *n_results = n_algorithms;
        return CUBLAS_STATUS_SUCCESS;
      };
  table.cublasLtMatmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                            cublasLtMatrixLayout_t a, const void*, cublasLtMatrixLayout_t b,
                            const void*, const void* c, cublasLtMatrixLayout_t, void* d,
                            cublasLtMatrixLayout_t out, const cublasLtMatmulAlgo_t*, void*, size_t,
                            cudaStream_t) {
    EXPECT_EQ(c, d);
    lt_products.push_back({layouts.at(a), layouts.at(b), layouts.at(out)});
    return CUBLAS_STATUS_SUCCESS;
  };
}

inline Api recording_api() {
  Api table = test::fake_api();
  table.cublasGemmEx_64 = [](cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t m,
                             int64_t n, int64_t k, const void*, const void* a, cudaDataType type,
                             int64_t, const void*, cudaDataType, int64_t, const void*, void*,
                             cudaDataType, int64_t ldc, cublasComputeType_t compute,
                             cublasGemmAlgo_t) {
    gemms.push_back({m, n, k, ldc, a, type, compute});
    return CUBLAS_STATUS_SUCCESS;
  };
  record_cublas_lt(table);
  return table;
}

inline int64_t total(const Dequantizer::Launches& launches, std::string_view prefix) {
  int64_t n = 0;
  for (const auto& [name, count] : launches) {
    n += name.starts_with(prefix) ? count : 0;
  }
  return n;
}

class ProjectionOnFakes : public ::testing::Test {
 protected:
  ProjectionOnFakes()
      : table_(recording_api()), cuda_(std::make_unique<test::CudaDouble>(&table_)) {
    gemms.clear();
    lt_products.clear();
    lt_attributes.clear();
    n_algorithms = 1;
    set_log_level(LogLevel::kQuiet);
  }
  ~ProjectionOnFakes() override { set_log_level(LogLevel::kNormal); }

  void make(PrefillGemm gemm, bool exact = false) {
    plan_ = build_plan(model_);
    exec_ = lower(plan_, {.backend = BackendKind::kCuda,
                          .phase = Phase::kPrefill,
                          .max_rows = kRows,
                          .f16_rows = scales_rows(choose_prefill_gemm(gemm, exact).ran),
                          .e4m3_rows = gemm == PrefillGemm::kFp8});
    std::set<std::string_view> types;
    for (const Weight& weight : model_.weights()) {
      types.insert(weight.type->name);
    }
    std::vector<KernelRow> rows;
    for (const KernelRow& row : kernel_table()) {
      if ((row.quant_type.empty() || types.contains(row.quant_type)) &&
          !row.name.starts_with("attention") && !row.name.starts_with("matvec")) {
        rows.push_back(row);
      }
    }
    KernelCompiler compiler("");
    kernels_ = std::make_unique<KernelLibrary>(compiler, rows, "sm_90a");
    stream_ = create_stream();
    weights_ = std::make_unique<DeviceWeights>(model_.weights());
    make_projection(gemm, exact);
  }

  void make_projection(PrefillGemm gemm, bool exact = false, uint64_t reserved_bytes = 0) {
    DeviceFacts device;
    device.cc_major = 9;
    const std::vector<ProjectionGroup> groups = projection_groups(exec_);
    projection_ =
        std::make_unique<Projection>(*kernels_, stream_, device, *weights_, groups,
                                     Projection::Options{gemm, exact, kRows, reserved_bytes});
  }

  // The stages of a chunk that are the projection's.
  void run_chunk() {
    std::byte* workspace = reinterpret_cast<std::byte*>(0x10000);
    for (const Stage& stage : exec_.stages) {
      if (stage.kernel == "project_attention") {
        const GroupProducts qkv = projection_->multiply(exec_, stage, workspace, kRows);
        EXPECT_EQ(qkv.columns.size(), 3U);
        EXPECT_EQ(qkv.columns[2].first_col + qkv.columns[2].n_cols, qkv.products.stride);
      } else if (stage.kernel.starts_with("project") || stage.kernel == "norm_rows") {
        projection_->run(exec_, stage, workspace, kRows);
      } else if (stage.kernel == "matmul") {
        const Op& op = plan_.ops[static_cast<size_t>(stage.first_op)];
        float* x = reinterpret_cast<float*>(workspace);
        projection_->project({op.weights[0], nullptr, x, x, kRows, op.weights[0]->n_rows});
      }
    }
  }

  uint64_t cache_bytes() const {
    uint64_t n_bytes = 0;
    for (const Op& op : plan_.ops) {
      if (op.kind == OpKind::kMatmul && op.layer_idx >= 0) {
        n_bytes += static_cast<uint64_t>(op.weights[0]->n_rows * op.weights[0]->n_cols * 2);
      }
    }
    return n_bytes;
  }

  // A fixture of many types, one matrix of which is F32.
  std::vector<std::byte> image_ = [] {
    test::GgufWriter writer =
        test::GgufWriter::copy_of(test::open_gguf(test::model_fixture("tiny-qwen3-kmix")));
    test::retype_tensor(writer.tensor("blk.1.ffn_up.weight"), test::kTypeF32);
    return writer.bytes();
  }();
  Model model_{test::open_gguf_image(image_)};
  Api table_;
  std::unique_ptr<test::CudaDouble> cuda_;
  Plan plan_;
  ExecPlan exec_;
  std::unique_ptr<KernelLibrary> kernels_;
  Stream stream_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<Projection> projection_;
};

}  // namespace apr::cuda
