// The products of a prefill: y = x w^T for the rows of a chunk, in one of four modes, and the
// fused stages of modes f16 and fp8.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apr/lower.h"
#include "cuda/device.h"
#include "cuda/e4m3_gemm.h"
#include "cuda/few_token_products.h"
#include "cuda/half_weights.h"

namespace apr::cuda {

// What the prefill's products were asked to run, what they run and why that differs; for people and
// JSON. Empty `reason`: it does not.
struct PrefillGemmReport {
  PrefillGemm requested = PrefillGemm::kF16, ran = PrefillGemm::kF16;
  std::string reason = {};
  std::string tier = {};  // what multiplies few tokens; empty: what multiplies many
};

// The products of a group, side by side, until the next product of the same Projection.
struct GroupProducts {
  float* data = nullptr;  // [n_tokens, products.stride] f32: products.data
  Products products{};
  std::vector<ProductColumns> columns;  // [matrices]
};

// F16Rows or E4m3Rows.
struct ScaledRows {
  const void* values = nullptr;
  const float* undo = nullptr;  // [n_rows]
};

struct ProjectionArgs {
  const Weight* weight = nullptr;  // of the groups
  const float* bias = nullptr;     // [n_rows] f32 or null
  const float* x = nullptr;        // [n_tokens, n_cols] f32
  float* y = nullptr;              // [n_tokens, ldc] f32, of which columns [0, n_rows) are written
  int64_t n_tokens = 0, ldc = 0;   // ldc: elements from one row of y to the next
};

class Projection {
 public:
  struct Options {
    PrefillGemm requested = PrefillGemm::kF16;
    bool exact = false;
    int64_t max_rows = 1;         // of a chunk
    uint64_t reserved_bytes = 0;  // of device memory that others will take
    int64_t most_scratch_bytes = kMostWeightScratchBytes;
    HalfStoreChoice store = {};  // where such weights are wanted; kept only where they fit, too
    FewTokensUse few_tokens = FewTokensUse::kNever;  // of f16 products of few tokens
  };

  // Allocates scratch for `groups` and, in modes f16 and fp8, makes their weights on `stream`
  // without waiting. What it is given must outlive it. Throws kBackendUnavailable.
  Projection(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
             const DeviceWeights& weights, std::span<const ProjectionGroup> groups,
             const Options& options);

  // y = x w^T (+ bias) on the stream; answers the mode that ran. Contract: bounded, see
  // tests/gpu_projection_test.cpp. Throws kInference naming mode and argument for a null x or y and
  // for ldc < n_rows, kBackendUnavailable for a call that fails.
  PrefillGemm project(const ProjectionArgs& args);

  // The products of all matmuls of a stage of the prefill plan with their one input, whose values
  // are in `workspace`. Modes f16 and fp8.
  GroupProducts multiply(const ExecPlan& exec, const Stage& stage, std::byte* workspace,
                         int64_t n_tokens);

  // Runs a stage of kernel "norm_rows" or "project..." (lower/fuse.h), but not
  // "project_attention", of the prefill plan. Modes f16 and fp8.
  void run(const ExecPlan& exec, const Stage& stage, std::byte* workspace, int64_t n_tokens);

  const PrefillGemmReport& report() const { return report_; }
  const Dequantizer::Launches& dequant_launches() const { return dequantizer_.launches(); }
  HalfStore half_store() const { return half_store_; }

 private:
  PrefillGemmReport report_for(std::span<const ProjectionGroup> groups) const;
  void allocate(std::span<const ProjectionGroup> groups, int64_t most_scratch_bytes);

  void project_scaled(const ProjectionArgs& args);
  void project_f32(const ProjectionArgs& args);
  void project_dp4a(const ProjectionArgs& args);

  // Rows for products with weights of this size: f16, or E4M3.
  ScaledRows scale_rows(const float* x, int64_t n_tokens, int64_t n_cols, bool e4m3);
  // `to` [n_tokens, stride] of rows and matrices that are all f16 or all E4M3, side by side, of
  // which there may be splits where `columns` say so then; of E4M3 up to a kE4m3Multiple of rows
  // are written.
  void multiply_scaled(std::span<const Weight* const> weights, const ScaledRows& rows,
                       int64_t n_tokens, const ProductsTo& to, std::span<ProductColumns> columns);
  // Rows of `stride` products in our own scratch, with as many splits as there is room for.
  ProductsTo own_products(int64_t n_tokens, int64_t stride) const;
  // products [n_tokens, stride] = rows [n_tokens, n_cols] w^T of one matrix of either type.
  void gemm(cudaDataType_t type, cublasComputeType_t compute, const void* w, int64_t n_rows,
            int64_t n_cols, const void* rows, int64_t n_tokens, float* products, int64_t stride);
  // Row tiles of a matrix that is not kept: as many as the scratch holds.
  int64_t tile_rows(const Weight& weight, int64_t elem_bytes, int64_t multiple = 1) const;
  ProductColumns columns_of(const Weight& weight, const float* bias, int64_t first_col);
  void unscale(const UnscaleParams& params, int n_parts, int64_t n_tokens);
  bool keeps_row(int64_t n_cols) const;

  const KernelLibrary& kernels_;
  const Stream& stream_;
  const DeviceWeights& weights_;
  bool small_shared_;  // 48 KiB of shared memory a block
  PrefillGemm mode_;
  int64_t max_rows_;
  HalfStore half_store_ = HalfStore::kStreamed;
  Dequantizer dequantizer_;
  HalfWeights half_weights_;
  DeviceBuffer cublas_workspace_;
  CublasHandle cublas_;
  std::optional<FewTokenProducts> few_tokens_;
  std::optional<E4m3Gemm> e4m3_;           // mode fp8
  DeviceBuffer weight_scratch_;            // rows of a matrix that is not kept
  DeviceBuffer x_scratch_, undo_scratch_;  // F16Rows or E4m3Rows; or values of Q8Rows
  DeviceBuffer q8_scale_, q8_sum_;
  DeviceBuffer products_;  // [max_rows, columns of a group] f32
  PrefillGemmReport report_;
};

}  // namespace apr::cuda
