#include "generate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apr/error.h"

namespace apr {
namespace {

double gate_cosine(std::span<const float> a, std::span<const float> b) {
  constexpr double kLeastNorms = 1e-12;
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (size_t idx = 0; idx < a.size(); ++idx) {
    ab += static_cast<double>(a[idx]) * b[idx];
    aa += static_cast<double>(a[idx]) * a[idx];
    bb += static_cast<double>(b[idx]) * b[idx];
  }
  const double norms = std::sqrt(aa) * std::sqrt(bb);
  return norms >= kLeastNorms && std::isfinite(norms) ? ab / norms : 0.0;
}

TokenId largest(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

GatePosition gate_position(std::span<const float> oracle, std::span<const float> found,
                           int64_t n_tokens) {
  APR_CHECK(oracle.size() == found.size() && n_tokens >= 1, "two rows of one vocabulary");
  const size_t n_judged = std::min(oracle.size(), static_cast<size_t>(n_tokens));
  GatePosition position;
  position.cosine = gate_cosine(oracle, found);
  position.oracle_id = largest(oracle.first(n_judged));
  position.id = largest(found.first(n_judged));
  for (size_t idx = 0; idx < oracle.size(); ++idx) {
    position.max_abs_difference = std::max(position.max_abs_difference,
                                           std::abs(static_cast<double>(oracle[idx]) - found[idx]));
  }
  return position;
}

LoadVerdict judge_load(double cosine, bool can_retry) {
  if (cosine >= kGateCosine) {
    return LoadVerdict::kPass;
  }
  return can_retry && cosine >= kRetryCosine ? LoadVerdict::kRetry : LoadVerdict::kFail;
}

GuardVerdict judge_guard(std::span<const GatePosition> positions,
                         std::span<const std::vector<GatePosition>> batches) {
  GuardVerdict verdict;
  const auto judge = [&](std::span<const GatePosition> part) {
    for (size_t idx = 1; idx < part.size(); ++idx) {
      const GatePosition& position = part[idx];
      ++verdict.n_judged;
      verdict.min_cosine = std::min(verdict.min_cosine, position.cosine);
      const bool is_other = position.id != position.oracle_id;
      const bool is_bad = position.cosine < (is_other ? kGateCosine : kGuardCosine);
      if (is_bad && !verdict.rejected) {
        verdict.rejected = true;
        verdict.first_bad = static_cast<int64_t>(idx);
        verdict.bad = position;
      }
    }
  };
  judge(positions);
  for (const std::vector<GatePosition>& batch : batches) {
    judge(batch);
  }
  return verdict;
}

bool may_retry_without_fp8(const GuardVerdict& verdict, bool is_batched, bool is_fp8) {
  return verdict.rejected && is_batched && is_fp8 && verdict.min_cosine >= kRetryCosine &&
         verdict.bad.cosine >= kRetryCosine;
}

std::string describe_rejection(const GuardVerdict& verdict) {
  return fmt::format("position {} (argmax {} {} {}, cosine {:.6f}); min cosine {:.6f}",
                     verdict.first_bad, verdict.bad.id,
                     verdict.bad.id == verdict.bad.oracle_id ? "==" : "!=", verdict.bad.oracle_id,
                     verdict.bad.cosine, verdict.min_cosine);
}

TokenId gate_token(std::optional<TokenId> bos) {
  return bos.value_or(1);
}

std::vector<TokenId> guard_probe(std::span<const TokenId> prompt, std::optional<TokenId> bos) {
  if (prompt.empty()) {
    return bos ? std::vector<TokenId>{*bos} : std::vector<TokenId>{};
  }
  const auto probe = prompt.last(std::min(prompt.size(), static_cast<size_t>(kProbeTokens)));
  return {probe.begin(), probe.end()};
}

int64_t guard_batch_rows(int64_t n_prompt, int64_t max_rows) {
  return std::min({n_prompt, max_rows, kWideRows});
}

std::vector<int64_t> guard_batches(int64_t n_probe, int64_t n_prompt, int64_t max_rows) {
  std::vector<int64_t> batches;
  for (const int64_t n_rows : kFewRows) {
    if (n_rows < n_probe && n_rows <= max_rows) {
      batches.push_back(n_rows);
    }
  }
  if (const int64_t n_rows = guard_batch_rows(n_prompt, max_rows); n_rows > n_probe) {
    batches.push_back(n_rows);
  }
  return batches;
}

bool covers_rows(int64_t judged_rows, int64_t rows) {
  return judged_rows >= std::min(rows, kWideRows);
}

}  // namespace apr
