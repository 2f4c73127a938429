// The CUDA backend: runs lowered plans stage by stage; decode as one graph a token.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apr/backend.h"
#include "cuda/device.h"
#include "cuda/handles.h"
#include "cuda/kernel_library.h"
#include "cuda/weights.h"

namespace apr::cuda {

enum class PrefillGemm { kF32, kF16 };

struct CudaBackendOptions {
  int device = 0;
  int64_t context = 0;        // positions; 0: the model's
  int64_t prefill_chunk = 0;  // rows of one forward; 0: 2048, or less where the context is
  int64_t max_logit_rows = 1;
  bool exact = false;  // f32 products and cache, kernels in the reference's order of sums
  PrefillGemm prefill_gemm = PrefillGemm::kF16;
};

class CudaBackend final : public Backend {
 public:
  // Takes device `options.device`, compiles kernels and uploads `model`, which must outlive it.
  // Throws kBackendUnavailable, kNotImplemented for an op that has no kernel yet, kUsage.
  CudaBackend(const Model& model, const CudaBackendOptions& options);

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override;
  void undo_last() override;
  void reset() override;
  int64_t n_past() const override { return n_past_; }
  int64_t context() const override { return context_; }
  int64_t max_rows() const override { return prefill_.target.max_rows; }
  int64_t max_logit_rows() const override { return prefill_.target.max_logit_rows; }
  const ModelDesc& desc() const override { return model_.desc(); }
  std::string device_name() const override;
  int64_t graph_kernels() const { return graph_kernels_; }  // of the decode graph; 0 before it

 private:
  // One step being launched: which plan, how many rows, whose logits.
  struct Step {
    const ExecPlan* exec;
    int64_t n_tokens;
    std::span<const int64_t> logit_rows;
  };

  std::vector<KernelRow> needed_rows() const;
  void launch_stages(const Step& step);
  void launch_stage(const Step& step, const Stage& stage);
  void matvec(const Step& step, const Stage& stage);
  void matmul(const Step& step, const Op& op);
  void qk_rope_append(const Step& step, const Stage& stage);
  void attention(const Step& step, const Stage& stage);
  void elementwise(const Step& step, const Op& op, const char* kernel);
  // Launches a kernel of dequant.cu over all rows of `weight`; `out` steps out_row_bytes a row.
  void launch_over_rows(const std::string& kernel, const Weight& weight, std::byte* out,
                        int64_t out_row_bytes, float scale);
  void dequantise(const Weight& weight, bool half, std::byte* out, float scale);
  void find_weight_scales();
  float* value(const Step& step, ValueId id) const;
  int64_t rows_of(const Step& step, ValueId id) const;
  bool f16_cache() const { return !options_.exact; }

  const Model& model_;
  CudaBackendOptions options_;
  DeviceFacts device_;
  int64_t context_;
  Plan plan_;
  ExecPlan prefill_, decode_;
  Stream stream_;
  std::unique_ptr<KernelLibrary> kernels_;
  CublasHandle cublas_;
  std::unique_ptr<DeviceWeights> weights_;
  DeviceBuffer workspace_, step_state_, inv_freq_, partial_, counters_;
  DeviceBuffer weight_scratch_, rows_scratch_, undo_scratch_;  // of prefill products
  std::vector<VirtualRange> k_cache_, v_cache_;                // [n_states]
  PinnedBuffer host_step_, host_logits_;
  GraphExec decode_graph_;
  std::unordered_map<const Weight*, float> weight_scale_;  // of 16-bit prefill weights
  int64_t graph_kernels_ = 0;
  int64_t n_past_ = 0, last_n_tokens_ = 0;
};

}  // namespace apr::cuda
