// A backend in place of a GPU: another's logits, changed; its limits, lowered; its failures,
// planted.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "support/wrapped_backend.h"

namespace apr::test {

struct Alteration {
  // Changes the logits of a position, [vocab_rows]; `n_rows`: of the forward that computed them.
  std::function<void(int64_t position, int64_t n_rows, std::span<float> logits)> change = {};
  std::function<void(int64_t n_past, int64_t n_rows)> before = {};  // may throw
  std::function<void()> before_reset = {};                          // may throw
  int64_t max_rows = 1 << 20, max_logit_rows = 1 << 20;
};

class AlteredBackend final : public WrappedBackend {
 public:
  AlteredBackend(std::unique_ptr<Backend> inner, Alteration alteration)
      : WrappedBackend(*inner), owned_(std::move(inner)), alteration_(std::move(alteration)) {}

  bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
               std::span<float> logits, const std::atomic<bool>* cancel) override {
    const int64_t first = inner_.n_past();
    const auto n_rows = static_cast<int64_t>(ids.size());
    APR_CHECK(n_rows <= max_rows(), "a step has at most max_rows ids");
    APR_CHECK(static_cast<int64_t>(logit_rows.size()) <= max_logit_rows(), "logit rows fit");
    if (alteration_.before) {
      alteration_.before(first, n_rows);
    }
    ++n_forwards;
    if (!inner_.forward(ids, logit_rows, logits, cancel)) {
      return false;
    }
    const auto vocab = static_cast<size_t>(desc().vocab_rows);
    for (size_t row = 0; alteration_.change && row < logit_rows.size(); ++row) {
      alteration_.change(first + logit_rows[row], n_rows, logits.subspan(row * vocab, vocab));
    }
    return true;
  }
  void reset() override {
    if (alteration_.before_reset) {
      alteration_.before_reset();
    }
    inner_.reset();
  }
  int64_t max_rows() const override { return std::min(inner_.max_rows(), alteration_.max_rows); }
  int64_t max_logit_rows() const override {
    return std::min(inner_.max_logit_rows(), alteration_.max_logit_rows);
  }
  std::string device_name() const override { return "altered " + inner_.device_name(); }

  int n_forwards = 0;

 private:
  std::unique_ptr<Backend> owned_;
  Alteration alteration_;
};

// Turns `logits` away so that their cosine with what they were is about `cosine`.
inline void turn_away(std::span<float> logits, double cosine) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  double size = 0.0, noise_size = 0.0, product = 0.0;
  std::vector<double> noise;
  for (const float logit : logits) {
    noise.push_back(normal(random));
    size += static_cast<double>(logit) * logit;
    noise_size += noise.back() * noise.back();
    product += noise.back() * logit;
  }
  // Noise across the logits, of the length that makes the angle.
  const double along = product / size, across = noise_size - product * product / size;
  const double scale = std::sqrt(size * (1.0 / (cosine * cosine) - 1.0) / across);
  for (size_t idx = 0; idx < logits.size(); ++idx) {
    logits[idx] += static_cast<float>(scale * (noise[idx] - along * logits[idx]));
  }
}

}  // namespace apr::test
