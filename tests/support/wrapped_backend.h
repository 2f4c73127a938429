// A backend that does what another does: what tests change of it they override. Sampling stays with
// the host, whatever the one behind it can.
#pragma once

#include "apr/backend.h"

namespace apr::test {

class WrappedBackend : public Backend {
 public:
  explicit WrappedBackend(Backend& inner) : inner_(inner) {}

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override {
    return inner_.forward(ids, logit_rows, logits, cancel);
  }
  void observe(StepObserver* observer) override { inner_.observe(observer); }
  void undo_last() override { inner_.undo_last(); }
  void reset() override { inner_.reset(); }
  int64_t n_past() const override { return inner_.n_past(); }
  int64_t context() const override { return inner_.context(); }
  int64_t max_rows() const override { return inner_.max_rows(); }
  int64_t max_logit_rows() const override { return inner_.max_logit_rows(); }
  const ModelDesc& desc() const override { return inner_.desc(); }
  std::string device_name() const override { return inner_.device_name(); }

 protected:
  Backend& inner_;  // which outlives it
};

}  // namespace apr::test
