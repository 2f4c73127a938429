// The products of a prefill: y = x w^T for the rows of a chunk, in one of three modes, and the
// fused stages of mode f16.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apr/lower.h"
#include "cuda/device.h"
#include "cuda/half_weights.h"

namespace apr::cuda {

// What the prefill's products were asked to run, what they run and why that differs; for people and
// JSON. Empty `reason`: it does not.
struct PrefillGemmReport {
  PrefillGemm requested = PrefillGemm::kF16, ran = PrefillGemm::kF16;
  std::string reason = {};
};

// The products of a group, side by side, until the next product of the same Projection.
struct GroupProducts {
  float* data = nullptr;  // [n_tokens, products.stride] f32: products.data
  Products products{};
  std::vector<ProductColumns> columns;  // [matrices]
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
    HalfStoreChoice store = {};  // where 16-bit weights are wanted; kept only where they fit, too
  };

  // Allocates scratch for `groups` and, in mode f16, makes the 16-bit weights on `stream` without
  // waiting. What it is given must outlive it. Throws kBackendUnavailable.
  Projection(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
             const DeviceWeights& weights, std::span<const ProjectionGroup> groups,
             const Options& options);

  // y = x w^T (+ bias) on the stream; answers the mode that ran. Contract: bounded, see
  // tests/gpu_projection_test.cpp. Throws kInference naming mode and argument for a null x or y and
  // for ldc < n_rows, kBackendUnavailable for a call that fails.
  PrefillGemm project(const ProjectionArgs& args);

  // The products of all matmuls of a stage of the prefill plan with their one input, whose values
  // are in `workspace`. Mode f16 alone.
  GroupProducts multiply(const ExecPlan& exec, const Stage& stage, std::byte* workspace,
                         int64_t n_tokens);

  // Runs a stage of kernel "norm_rows" or "project..." (lower/fuse.h), but not
  // "project_attention", of the prefill plan. Mode f16 alone.
  void run(const ExecPlan& exec, const Stage& stage, std::byte* workspace, int64_t n_tokens);

  const PrefillGemmReport& report() const { return report_; }
  const Dequantizer::Launches& dequant_launches() const { return dequantizer_.launches(); }
  HalfStore half_store() const { return half_store_; }

 private:
  PrefillGemmReport report_for(std::span<const ProjectionGroup> groups) const;
  void allocate(std::span<const ProjectionGroup> groups, int64_t most_scratch_bytes);

  void project_f16(const ProjectionArgs& args);
  void project_f32(const ProjectionArgs& args);
  void project_dp4a(const ProjectionArgs& args);

  F16Rows scale_rows(const float* x, int64_t n_tokens, int64_t n_cols);
  // products [n_tokens, stride] of 16-bit rows and matrices, side by side.
  void multiply_f16(std::span<const Weight* const> weights, const F16Rows& rows, int64_t n_tokens,
                    float* products, int64_t stride);
  // products [n_tokens, stride] = rows [n_tokens, n_cols] w^T of one matrix of either type.
  void gemm(cudaDataType_t type, cublasComputeType_t compute, const void* w, int64_t n_rows,
            int64_t n_cols, const void* rows, int64_t n_tokens, float* products, int64_t stride);
  // Row tiles of a matrix that is not kept: as many as the scratch holds.
  int64_t tile_rows(const Weight& weight, int64_t elem_bytes) const;
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
  DeviceBuffer weight_scratch_;            // rows of a matrix that is not kept, f32 or f16
  DeviceBuffer x_scratch_, undo_scratch_;  // F16Rows; or values of Q8Rows
  DeviceBuffer q8_scale_, q8_sum_;
  DeviceBuffer products_;  // [max_rows, columns of a group] f32
  PrefillGemmReport report_;
};

}  // namespace apr::cuda
