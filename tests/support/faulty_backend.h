// A backend with one planted fault: what one op makes is changed right after it was computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/wrapped_backend.h"

namespace apr::test {

struct Fault {
  int op_idx = -1;
  size_t out_idx = 0;
  bool of_state = false;    // what the op wrote to its state instead
  bool in_decode = false;   // in steps of one token alone, else in longer ones alone
  bool non_finite = false;  // a NaN; else a quarter of the largest value is added to one
  int64_t n_experts = 0;    // for outputs of integers
};

class FaultyBackend final : public WrappedBackend, private StepObserver {
 public:
  FaultyBackend(Backend& inner, const Fault& fault) : WrappedBackend(inner), fault_(fault) {}

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override {
    is_decode_ = ids.size() == 1;
    return inner_.forward(ids, logit_rows, logits, cancel);
  }
  void observe(StepObserver* observer) override {
    observer_ = observer;
    inner_.observe(observer == nullptr ? nullptr : this);
  }

  bool was_planted() const { return was_planted_; }

 private:
  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override {
    const bool covers =
        stage.first_op <= fault_.op_idx && fault_.op_idx < stage.first_op + stage.n_ops;
    if (covers && fault_.in_decode == is_decode_) {
      plant(exec, stage, values);
    }
    observer_->after_stage(exec, stage, values);
  }

  void plant(const ExecPlan& exec, const Stage& stage, StepValues& values) {
    const Op& op = exec.plan->ops[static_cast<size_t>(fault_.op_idx)];
    if (fault_.of_state) {
      std::vector<float> state = values.read_state(op.state_idx);
      change(state);
      values.write_state(op.state_idx, state);
      was_planted_ = true;
      return;
    }
    const ValueId id = op.outputs[fault_.out_idx];
    if (std::find(stage.materialised.begin(), stage.materialised.end(), id) ==
        stage.materialised.end()) {
      return;
    }
    std::vector<float> rows = values.read(id);
    if (exec.plan->values[static_cast<size_t>(id)].type == ValueType::kI32) {
      int32_t expert = 0;
      std::memcpy(&expert, rows.data(), sizeof expert);
      expert = static_cast<int32_t>((expert + 1) % fault_.n_experts);
      std::memcpy(rows.data(), &expert, sizeof expert);
    } else {
      change(rows);
    }
    values.write(id, rows);
    was_planted_ = true;
  }

  void change(std::vector<float>& values) const {
    float largest = 0.0F;
    for (const float value : values) {
      largest = std::max(largest, std::abs(value));
    }
    float& target = values[values.size() / 2];
    target = fault_.non_finite ? std::numeric_limits<float>::quiet_NaN()
                               : target + (target < 0.0F ? -0.25F : 0.25F) * largest;
  }

  Fault fault_;
  StepObserver* observer_ = nullptr;
  bool is_decode_ = false, was_planted_ = false;
};

}  // namespace apr::test
