#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

#include "apr/error.h"
#include "apr/generate.h"
#include "generate/logit_fault.h"
#include "sample_math.cuh"

namespace apr {
namespace {

constexpr double kMaxInt = 2147483647.0;
constexpr std::array kRanges = {
    SamplingRange{"temperature", 0.0, 1000.0, &SamplingParams::temperature, nullptr},
    SamplingRange{"top-k", 0.0, kMaxInt, nullptr, &SamplingParams::top_k},
    SamplingRange{"top-p", 0.0, 1.0, &SamplingParams::top_p, nullptr},
    SamplingRange{"min-p", 0.0, 1.0, &SamplingParams::min_p, nullptr},
    SamplingRange{"repeat-penalty", 0.01, 100.0, &SamplingParams::repeat_penalty, nullptr},
    SamplingRange{"presence-penalty", -100.0, 100.0, &SamplingParams::presence_penalty, nullptr},
    SamplingRange{"frequency-penalty", -100.0, 100.0, &SamplingParams::frequency_penalty, nullptr},
    SamplingRange{"repeat-last-n", -1.0, kMaxInt, nullptr, &SamplingParams::repeat_last_n},
};

// The position of the largest logit, the lowest of ties. Throws for NaN, +inf and nothing finite.
size_t checked_argmax(std::span<const float> logits, int64_t step) {
  float best = -std::numeric_limits<float>::infinity();
  size_t best_id = logits.size();
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] <= FLT_MAX)) {
      throw_logit_fault({std::isnan(logits[id]) ? LogitFaultKind::kNan : LogitFaultKind::kInf,
                         static_cast<TokenId>(id)},
                        static_cast<int64_t>(logits.size()), step);
    }
    if (logits[id] > best) {
      best = logits[id];
      best_id = id;
    }
  }
  if (best_id == logits.size()) {
    throw_logit_fault({LogitFaultKind::kNothingFinite, 0}, static_cast<int64_t>(logits.size()),
                      step);
  }
  return best_id;
}

}  // namespace

void throw_logit_fault(const LogitFault& fault, int64_t n_tokens, int64_t step) {
  if (fault.kind == LogitFaultKind::kNothingFinite) {
    throw Error(ErrorCode::kInference,
                fmt::format("non-finite logits: none of {} tokens has a finite logit at step {}",
                            n_tokens, step));
  }
  throw Error(ErrorCode::kInference,
              fmt::format("non-finite logits: {} for token {} at step {}; the computation is "
                          "broken, no token can be chosen",
                          fault.kind == LogitFaultKind::kNan ? "NaN" : "+inf", fault.id, step));
}

std::span<const SamplingRange> sampling_ranges() {
  return kRanges;
}

Sampler::Sampler(const SamplingParams& params, int64_t n_tokens)
    : params_(params), n_tokens_(n_tokens) {
  APR_CHECK(n_tokens > 0 && n_tokens <= std::numeric_limits<TokenId>::max(),
            "a vocabulary of token ids");
  for (const SamplingRange& range : kRanges) {
    const double value =
        range.real != nullptr ? params.*range.real : static_cast<double>(params.*range.whole);
    if (!(value >= range.min && value <= range.max)) {
      throw Error(ErrorCode::kUsage, fmt::format("{} is {}; allowed: {} to {}", range.name, value,
                                                 range.min, range.max));
    }
  }
}

// The order of candidates: by logit, of ties the lowest id first.
bool Sampler::is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// adjusted_ [n_tokens]: the logits with the penalties on what the window of the history holds.
void Sampler::apply_penalties(std::span<const float> logits, std::span<const TokenId> history) {
  adjusted_.assign(logits.begin(), logits.end());
  const size_t window = params_.repeat_last_n < 0
                            ? history.size()
                            : std::min(history.size(), static_cast<size_t>(params_.repeat_last_n));
  const auto recent = history.last(window);
  seen_.assign(recent.begin(), recent.end());
  std::sort(seen_.begin(), seen_.end());
  for (size_t first = 0; first < seen_.size();) {
    const TokenId id = seen_[first];
    size_t last = first;
    while (last < seen_.size() && seen_[last] == id) {
      ++last;
    }
    const auto n_seen = static_cast<int64_t>(last - first);
    first = last;
    if (id < 0 || id >= static_cast<TokenId>(adjusted_.size())) {
      continue;
    }
    float& logit = adjusted_[static_cast<size_t>(id)];
    logit = penalised(logit, n_seen, params_.repeat_penalty, params_.presence_penalty,
                      params_.frequency_penalty);
  }
}

// candidates_: the top_k best tokens, of ties the lowest ids, or all of them.
void Sampler::collect_candidates(std::span<const float> logits) {
  candidates_.clear();
  const size_t n_kept = params_.top_k == 0
                            ? logits.size()
                            : std::min(static_cast<size_t>(params_.top_k), logits.size());
  for (size_t id = 0; id < n_kept; ++id) {
    candidates_.push_back({logits[id], static_cast<TokenId>(id)});
  }
  if (n_kept == logits.size()) {
    return;
  }
  // A heap with the worst on top: nearly every other token is below it and costs one comparison.
  std::make_heap(candidates_.begin(), candidates_.end(), is_better);
  for (size_t id = n_kept; id < logits.size(); ++id) {
    if (logits[id] > candidates_.front().logit) {
      std::pop_heap(candidates_.begin(), candidates_.end(), is_better);
      candidates_.back() = {logits[id], static_cast<TokenId>(id)};
      std::push_heap(candidates_.begin(), candidates_.end(), is_better);
    }
  }
}

// Leaves the smallest set of best candidates that reaches top_p, then those of at least min_p times
// the best one's probability; `best` is the largest logit.
void Sampler::filter_candidates(float best, int bits) {
  const auto weight = [&](const Candidate& candidate) {
    return weight_of(double{candidate.logit} - double{best}, bits);
  };
  if (params_.top_p < 1.0) {
    uint64_t total = 0;
    for (const Candidate& candidate : candidates_) {
      total += weight(candidate);
    }
    const double wanted = params_.top_p * static_cast<double>(total);
    uint64_t reached = 0;
    size_t n_kept = 0, n_sorted = 0;
    while (n_kept < candidates_.size() && (n_kept == 0 || static_cast<double>(reached) < wanted)) {
      if (n_kept == n_sorted) {  // sorts only as far as the set reaches
        n_sorted = std::min(candidates_.size(), std::max<size_t>(256, n_sorted * 4));
        std::partial_sort(candidates_.begin() + static_cast<ptrdiff_t>(n_kept),
                          candidates_.begin() + static_cast<ptrdiff_t>(n_sorted), candidates_.end(),
                          is_better);
      }
      reached += weight(candidates_[n_kept++]);
    }
    candidates_.resize(n_kept);
  }
  if (params_.min_p > 0.0) {
    const double least = params_.min_p * std::ldexp(1.0, bits);
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      return static_cast<double>(weight(candidate)) < least;
    });
  }
}

TokenId Sampler::sample(std::span<const float> logits, std::span<const TokenId> history,
                        int64_t step) {
  logits = logits.first(std::min(logits.size(), static_cast<size_t>(n_tokens_)));
  size_t best_id = checked_argmax(logits, step);
  if (params_.has_penalties()) {
    apply_penalties(logits, history);
    logits = adjusted_;
    best_id = checked_argmax(logits, step);
  }
  if (params_.is_greedy()) {
    return static_cast<TokenId>(best_id);
  }
  collect_candidates(logits);
  const int bits = weight_bits(static_cast<int64_t>(logits.size()));
  const float best = logits[best_id];
  filter_candidates(best, bits);
  // The draw walks the candidates by ascending id: an order any implementation can follow.
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  weights_.clear();
  uint64_t total = 0;
  for (const Candidate& candidate : candidates_) {
    const double distance = double{candidate.logit} - double{best};
    weights_.push_back(weight_of(distance == 0.0 ? 0.0 : distance / params_.temperature, bits));
    total += weights_.back();
  }
  uint64_t left = scale_to(philox_u64(params_.seed, static_cast<uint64_t>(step)), total);
  size_t chosen = 0;
  while (left >= weights_[chosen]) {
    left -= weights_[chosen++];
  }
  return candidates_[chosen].id;
}

}  // namespace apr
