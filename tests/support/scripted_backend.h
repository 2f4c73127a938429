// A backend that answers from a script: the n-th logits asked for favour the n-th token.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "apr/backend.h"

namespace apr::test {

class ScriptedBackend : public Backend {
 public:
  struct Call {
    int64_t n_past;
    std::vector<TokenId> ids;
    std::vector<int64_t> logit_rows;
  };

  // After the script its last token repeats; max_rows: tokens of a forward.
  ScriptedBackend(int64_t n_tokens, int64_t context, int64_t max_rows, std::vector<TokenId> script)
      : max_rows_(max_rows), context_(context), script_(std::move(script)) {
    desc_.n_tokens = n_tokens;
    desc_.vocab_rows = n_tokens + 3;
    desc_.context_length = 4 * context;
  }

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override {
    if (cancel != nullptr && cancel->load()) {
      return false;
    }
    calls.push_back({n_past_, {ids.begin(), ids.end()}, {logit_rows.begin(), logit_rows.end()}});
    n_past_ += static_cast<int64_t>(ids.size());
    for (size_t row = 0; row < logit_rows.size(); ++row) {
      const auto vocab = static_cast<size_t>(desc_.vocab_rows);
      write_logits(logits.subspan(row * vocab, vocab));
    }
    if (after_forward) {
      after_forward(static_cast<int>(calls.size()));
    }
    return true;
  }
  void undo_last() override {}
  void observe(StepObserver*) override {}
  void reset() override { n_past_ = 0; }
  int64_t n_past() const override { return n_past_; }
  int64_t context() const override { return context_; }
  int64_t max_rows() const override { return max_rows_; }
  int64_t max_logit_rows() const override { return 1; }
  const ModelDesc& desc() const override { return desc_; }
  std::string device_name() const override { return "script"; }

  std::vector<Call> calls;
  std::function<void(int n_calls)> after_forward;
  float background = 0.0F;  // of every other token

 protected:
  ModelDesc desc_;
  int64_t n_past_ = 0;

  // The next logits of the script, [vocab_rows].
  void write_logits(std::span<float> out) {
    std::fill(out.begin(), out.end(), background);
    const TokenId next = script_[std::min(n_asked_++, script_.size() - 1)];
    out[static_cast<size_t>(next)] = 10.0F;
  }

 private:
  int64_t max_rows_, context_;
  size_t n_asked_ = 0;
  std::vector<TokenId> script_;
};

}  // namespace apr::test
