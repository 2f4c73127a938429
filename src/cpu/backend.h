// The CPU backend: runs a lowered plan stage by stage.
#pragma once

#include "apr/backend.h"
#include "cpu/kernel_table.h"
#include "cpu/sequence_state.h"
#include "cpu/thread_pool.h"

namespace apr::cpu {

class CpuBackend final : public Backend {
 public:
  // `context` and `chunk`: positions and rows of a step, both at least 1.
  CpuBackend(const Model& model, const CpuBackendOptions& options, int64_t context, int64_t chunk);

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override;
  void observe(StepObserver* observer) override { observer_ = observer; }
  void undo_last() override { state_.undo(); }
  void reset() override { state_.reset(); }
  int64_t n_past() const override { return state_.n_past(); }
  int64_t context() const override { return state_.context(); }
  int64_t max_rows() const override { return exec_.target.max_rows; }
  int64_t max_logit_rows() const override { return exec_.target.max_logit_rows; }
  const ModelDesc& desc() const override { return model_.desc(); }
  std::string device_name() const override;

  const Plan& plan() const { return plan_; }
  const SequenceState& state() const { return state_; }

 private:
  class ObservedStep;
  enum class Run { kDone, kCancelled, kNonFinite };
  // Runs all stages; checks norms and logits for non-finite values, or every output.
  Run run_stages(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
                 const std::atomic<bool>* cancel, bool check_all, const Op** bad_op);
  StageIo stage_io(const Op& op, std::span<const TokenId> ids, std::span<const int64_t> logit_rows);
  float* value(ValueId id) const {
    return workspace_.data() + exec_.value_offset_bytes[static_cast<size_t>(id)] / 4;
  }
  const Value& value_info(ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }

  const Model& model_;
  const Plan plan_;
  const ExecPlan exec_;
  LazyBuffer workspace_;
  SequenceState state_;
  ThreadPool pool_;
  std::vector<KernelFn> kernels_;  // [n_stages]
  StepObserver* observer_ = nullptr;
};

}  // namespace apr::cpu
