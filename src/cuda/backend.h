// The CUDA backend: runs lowered plans stage by stage; decode as one graph a token, and prefills of
// few tokens as one each.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apr/cuda.h"
#include "cuda/attention.h"
#include "cuda/device.h"
#include "cuda/device_sampler.h"
#include "cuda/handles.h"
#include "cuda/kernel_library.h"
#include "cuda/memory_plan.h"
#include "cuda/moe.h"
#include "cuda/projection.h"
#include "cuda/weights.h"

namespace apr::cuda {

class CudaBackend final : public Backend {
 public:
  // Takes device `options.device`, compiles kernels and uploads `model`, which must outlive it.
  // Throws as make_cuda_backend.
  CudaBackend(const Model& model, const CudaBackendOptions& options);

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override;
  void observe(StepObserver* observer) override { observer_ = observer; }
  bool begin_decode(const DecodeOptions& options) override;
  DecodedToken next_token() override;
  void end_decode() override;
  void undo_last() override;
  void reset() override;
  int64_t n_past() const override { return n_past_; }
  int64_t context() const override { return context_; }
  int64_t max_rows() const override { return prefill_.target.max_rows; }
  int64_t max_logit_rows() const override { return prefill_.target.max_logit_rows; }
  const ModelDesc& desc() const override { return model_.desc(); }
  std::string device_name() const override;
  const Projection* projection() const { return projection_.get(); }  // null: serial
  const PrefillDecision& decision() const { return decision_; }
  int64_t graph_kernels() const { return graph_kernels_; }  // of the last decode graph; 0: none ran
  int64_t n_graphs() const { return static_cast<int64_t>(decode_graphs_.size()); }
  int64_t n_prefill_graphs() const;

 private:
  // One step being launched: which plan, how many rows, whose logits.
  struct Step {
    const ExecPlan* exec;
    int64_t n_tokens;
    std::span<const int64_t> logit_rows;
  };

  struct StepGraph {
    GraphExec exec;
    int64_t n_kernels = 0;
  };

  struct PrefillGraph {
    GraphExec exec;          // null: launched kernel by kernel
    int64_t n_launched = 0;  // times, so far
  };

  // An answer whose tokens are chosen on the device (decode.cpp).
  struct Decoding {
    bool active = false;
    int64_t first_step = 0;  // index in the answer of the first token
    int64_t n_most = 0;      // steps there may be
    int64_t n_launched = 0, n_taken = 0;
    std::vector<TokenId> stop_ids;
  };

  // Of an observed step, after a stage of it and a wait for the device (observe.cpp).
  class ObservedStep final : public StepValues {
   public:
    ObservedStep(CudaBackend& backend, const Step& step) : backend_(backend), step_(step) {}
    std::vector<float> read(ValueId id) const override;
    void write(ValueId id, std::span<const float> rows) override;
    std::vector<float> read_state(int state_idx) const override;
    void write_state(int state_idx, std::span<const float> state) override;

   private:
    int64_t n_rows(ValueId id) const;
    std::byte* data(ValueId id) const;
    size_t cache_elems() const;
    std::array<std::byte*, 2> cache_rows(int state_idx) const;  // keys, values of the step
    CudaBackend& backend_;
    const Step& step_;
  };

  std::vector<KernelRow> needed_rows() const;
  void grow_caches(int64_t n_positions);
  void replay_decode(int sampler_kind);  // 0: no sampler
  bool has_prefill_graph(const Step& step) const;
  void replay_prefill(const Step& step);
  void launch_ahead();
  void launch_stages(const Step& step);
  void launch_stage(const Step& step, const Stage& stage);
  // `row`: of the logit rows; a step of one token has one.
  void matvec(const Step& step, const Stage& stage, int64_t row = 0);
  void attention(const Step& step, const Stage& stage);
  void moe_route(const Step& step, const Stage& stage);
  void moe_ffn(const Step& step, const Stage& stage);
  void elementwise(const Step& step, const Op& op, const char* kernel);
  float* value(const Step& step, ValueId id) const;
  int64_t rows_of(const Step& step, ValueId id) const;
  bool f32_cache() const;

  const Model& model_;
  CudaBackendOptions options_;
  DeviceFacts device_;
  int64_t context_;
  Plan plan_;
  PrefillDecision decision_;
  ExecPlan prefill_, decode_;
  Stream stream_;
  std::unique_ptr<KernelLibrary> kernels_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<Projection> projection_;  // of prefill; null: serial
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<Moe> moe_;  // null: a model without experts
  DeviceBuffer workspace_, step_state_;
  std::vector<VirtualRange> k_cache_, v_cache_;  // [n_states]
  PinnedBuffer host_step_, host_logits_;
  std::unique_ptr<DeviceSampler> sampler_;          // null: a vocabulary that it cannot take
  std::map<int, StepGraph> decode_graphs_;          // by sampler kind, 0: none
  std::map<int64_t, PrefillGraph> prefill_graphs_;  // by tokens
  std::array<Event, kOutcomeSlots> step_done_;
  Decoding decoding_;
  int64_t graph_kernels_ = 0;
  int64_t n_past_ = 0, last_n_tokens_ = 0;
  StepObserver* observer_ = nullptr;
};

}  // namespace apr::cuda
