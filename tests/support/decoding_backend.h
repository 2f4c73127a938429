// A scripted backend that chooses its tokens itself, a step ahead, as a GPU does: what its "device"
// holds (next id, position, done) is changed by steps alone, never by the caller.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "apr/generate.h"
#include "support/scripted_backend.h"

namespace apr::test {

class DecodingBackend : public ScriptedBackend {
 public:
  using ScriptedBackend::ScriptedBackend;

  struct Fed {
    int64_t position;
    TokenId id;
    bool operator==(const Fed&) const = default;
  };

  bool begin_decode(const DecodeOptions& options) override {
    if (!decodes) {
      return false;
    }
    end_decode();
    EXPECT_EQ(n_past_ + 1, static_cast<int64_t>(options.history.size()));
    EXPECT_GE(options.max_tokens, 1);
    EXPECT_LE(n_past_ + options.max_tokens, context());
    sampler_ = std::make_unique<Sampler>(options.sampling, desc_.n_tokens);
    history_.assign(options.history.begin(), options.history.end());
    stop_ids_.assign(options.stop_ids.begin(), options.stop_ids.end());
    step_ = options.step;
    n_left_ = options.max_tokens;
    n_most_ = options.max_tokens;
    n_launched_ = n_taken_ = 0;
    position_ = n_past_;
    is_done_ = false;
    is_decoding_ = true;
    launch();
    return true;
  }

  DecodedToken next_token() override {
    EXPECT_TRUE(is_decoding_);
    EXPECT_LT(n_taken_, n_most_);
    launch();
    if (before_token) {
      before_token(n_taken_);
    }
    if (n_taken_ == fault_at) {
      return {-1, LogitFault{LogitFaultKind::kInf, 17}};
    }
    EXPECT_FALSE(chosen_.empty()) << "asked for a token after the last";
    const TokenId id = chosen_.front();
    chosen_.pop_front();
    ++n_taken_;
    ++n_past_;
    return {id, std::nullopt};
  }

  void end_decode() override {
    n_ended += is_decoding_ ? 1 : 0;
    n_taken_back += static_cast<int64_t>(chosen_.size());
    is_decoding_ = false;
    chosen_.clear();
  }

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override {
    end_decode();
    return ScriptedBackend::forward(ids, logit_rows, logits, cancel);
  }
  void reset() override {
    end_decode();
    ScriptedBackend::reset();
  }

  bool decodes = true;
  int64_t fault_at = -1;                              // the token that has a fault instead
  std::function<void(int64_t n_taken)> before_token;  // while next_token waits
  std::vector<Fed> fed;                               // what the steps wrote to the cache
  int64_t n_ended = 0, n_taken_back = 0;
  bool is_decoding() const { return is_decoding_; }

 private:
  void launch() {
    if (n_launched_ == n_most_) {
      return;
    }
    ++n_launched_;
    fed.push_back({position_, history_.back()});
    if (is_done_) {
      return;
    }
    std::vector<float> logits(static_cast<size_t>(desc_.vocab_rows));
    write_logits(logits);
    const TokenId id = sampler_->sample(logits, history_, step_++);
    chosen_.push_back(id);
    is_done_ =
        --n_left_ == 0 || std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
    if (!is_done_) {
      history_.push_back(id);
      ++position_;
    }
  }

  std::unique_ptr<Sampler> sampler_;
  std::vector<TokenId> history_, stop_ids_;
  std::deque<TokenId> chosen_;
  int64_t step_ = 0, n_left_ = 0, n_most_ = 0, n_launched_ = 0, n_taken_ = 0, position_ = 0;
  bool is_done_ = false, is_decoding_ = false;
};

}  // namespace apr::test
