#include "generate/parity_logits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "apr/error.h"

namespace apr {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log of the sum of exp(logit).
double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - largest);
  }
  return largest + std::log(sum);
}

double kl_divergence(std::span<const float> oracle, std::span<const float> other) {
  const double oracle_norm = log_sum_exp(oracle), other_norm = log_sum_exp(other);
  double kl = 0.0;
  for (size_t id = 0; id < oracle.size(); ++id) {
    const double log_p = static_cast<double>(oracle[id]) - oracle_norm;
    const double log_q = static_cast<double>(other[id]) - other_norm;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  return std::isfinite(kl) ? std::max(kl, 0.0) : kInfinity;  // rounding may go below zero
}

size_t argmax(std::span<const float> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::string where(const LogitsParity& position) {
  return fmt::format("position {} ({})", position.position,
                     position.is_decode ? "decode" : "prefill");
}

}  // namespace

double cosine_similarity(std::span<const float> a, std::span<const float> b) {
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (size_t idx = 0; idx < a.size(); ++idx) {
    ab += static_cast<double>(a[idx]) * b[idx];
    aa += static_cast<double>(a[idx]) * a[idx];
    bb += static_cast<double>(b[idx]) * b[idx];
  }
  return aa == 0.0 || bb == 0.0 ? (aa == bb ? 1.0 : 0.0) : ab / std::sqrt(aa * bb);
}

double relative_linf(std::span<const float> a, std::span<const float> oracle) {
  double difference = 0.0, size = 0.0;
  for (size_t idx = 0; idx < a.size(); ++idx) {
    if (!std::isfinite(a[idx])) {
      return kInfinity;
    }
    difference = std::max(difference, std::abs(static_cast<double>(a[idx]) - oracle[idx]));
    size = std::max(size, std::abs(static_cast<double>(oracle[idx])));
  }
  return difference == 0.0 ? 0.0 : difference / size;
}

LogitsParity compare_logits(std::span<const float> oracle, std::span<const float> other,
                            int64_t n_tokens) {
  APR_CHECK(oracle.size() == other.size(), "two rows of one vocabulary");
  LogitsParity parity;
  parity.cosine = cosine_similarity(other, oracle);
  parity.relative_linf = relative_linf(other, oracle);
  const size_t n_judged = std::min(oracle.size(), static_cast<size_t>(n_tokens));
  const std::span<const float> judged = oracle.first(n_judged);
  parity.kl = kl_divergence(judged, other.first(n_judged));
  const size_t top = argmax(judged);
  parity.oracle_id = static_cast<TokenId>(top);
  parity.id = static_cast<TokenId>(argmax(other.first(n_judged)));
  double second = -kInfinity;
  for (size_t id = 0; id < judged.size(); ++id) {
    parity.oracle_max_abs =
        std::max(parity.oracle_max_abs, std::abs(static_cast<double>(judged[id])));
    if (id != top) {
      second = std::max(second, static_cast<double>(judged[id]));
    }
  }
  parity.margin = static_cast<double>(judged[top]) - second;
  return parity;
}

ParityBounds parity_bounds(bool exact, bool trained, std::optional<double> eight_bit_cosine) {
  ParityBounds bounds;
  if (exact) {
    bounds.min_cosine = 0.99999;
    bounds.max_relative_linf = 1e-4;
    bounds.relative_margin = 2e-4;
    return bounds;
  }
  constexpr double kCosine = 0.9999, kMargin = 0.05;
  bounds.min_cosine = eight_bit_cosine.value_or(kCosine);
  bounds.margin = kMargin * std::sqrt((1.0 - bounds.min_cosine) / (1.0 - kCosine));
  if (trained && !eight_bit_cosine) {
    bounds.max_mean_kl = 1e-4;
  }
  return bounds;
}

std::string position_failure(const LogitsParity& position, const ParityBounds& bounds) {
  if (!(position.cosine >= bounds.min_cosine)) {
    return fmt::format("{}: cosine {:.8f}, at least {} is needed", where(position), position.cosine,
                       bounds.min_cosine);
  }
  if (bounds.max_relative_linf && !(position.relative_linf <= *bounds.max_relative_linf)) {
    return fmt::format("{}: relative Linf {:.3g}, at most {} is allowed", where(position),
                       position.relative_linf, *bounds.max_relative_linf);
  }
  const double judged_from =
      std::max(bounds.margin, bounds.relative_margin * position.oracle_max_abs);
  if (position.id != position.oracle_id && position.margin >= judged_from) {
    return fmt::format("{}: token {} instead of {}, which the oracle prefers by {:.4g}",
                       where(position), position.id, position.oracle_id, position.margin);
  }
  return {};
}

ParityVerdict judge(std::span<const LogitsParity> positions, const ParityBounds& bounds) {
  APR_CHECK(!positions.empty(), "a verdict is of a position");
  ParityVerdict verdict;
  for (size_t idx = 0; idx < positions.size(); ++idx) {
    const LogitsParity& position = positions[idx];
    verdict.min_cosine =
        idx == 0 || !(position.cosine >= verdict.min_cosine) ? position.cosine : verdict.min_cosine;
    verdict.max_relative_linf = std::max(verdict.max_relative_linf, position.relative_linf);
    verdict.mean_kl += position.kl / static_cast<double>(positions.size());
    const std::string failure = position_failure(position, bounds);
    if (!failure.empty() && verdict.passed) {
      verdict.passed = false;
      verdict.reason = failure;
    }
    if (failure.empty() && position.id != position.oracle_id) {
      verdict.near_ties.push_back(idx);
    }
  }
  if (verdict.passed && bounds.max_mean_kl && !(verdict.mean_kl <= *bounds.max_mean_kl)) {
    verdict.passed = false;
    verdict.reason = fmt::format("mean KL {:.3g} of {} positions, at most {} is allowed",
                                 verdict.mean_kl, positions.size(), *bounds.max_mean_kl);
  }
  return verdict;
}

}  // namespace apr
