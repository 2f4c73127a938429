#include "generate/gate_probe.h"

#include <algorithm>
#include <array>

#include "generate/moe_routes.h"

namespace apr {
namespace {

// Empties a backend's sequence and ends its observation, now and at the end of the scope.
class CleanSequence {
 public:
  explicit CleanSequence(Backend& backend) : backend_(backend) { clean(); }
  ~CleanSequence() {
    try {
      clean();
    } catch (const Error&) {  // of a card that has failed: the next step says so
    }
  }
  CleanSequence(const CleanSequence&) = delete;
  CleanSequence& operator=(const CleanSequence&) = delete;

 private:
  void clean() {
    backend_.observe(nullptr);
    backend_.reset();
  }
  Backend& backend_;
};

// The logits of every position, [n_positions, vocab_rows] f32.
class Rows {
 public:
  Rows(int64_t n_positions, int64_t vocab_rows)
      : vocab_rows_(static_cast<size_t>(vocab_rows)),
        values_(static_cast<size_t>(n_positions) * vocab_rows_) {}
  std::span<float> at(int64_t first, int64_t n_rows) {
    return std::span(values_).subspan(static_cast<size_t>(first) * vocab_rows_,
                                      static_cast<size_t>(n_rows) * vocab_rows_);
  }

 private:
  size_t vocab_rows_;
  std::vector<float> values_;
};

// Feeds `ids` in chunks and fills `rows` from position `first` on. `recorder` (may be null) sees
// each chunk once, when it stays. False when cancelled.
bool feed(Backend& backend, std::span<const TokenId> ids, int64_t first, Rows& rows,
          StepObserver* recorder, const std::atomic<bool>* cancel) {
  const auto n_ids = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < n_ids;) {
    const int64_t n_chunk = std::min(backend.max_rows(), n_ids - done);
    const auto chunk = ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n_chunk));
    for (int64_t row = 0; row < n_chunk;) {
      const int64_t n_rows = std::min(backend.max_logit_rows(), n_chunk - row);
      const bool stays = row + n_rows == n_chunk;
      std::vector<int64_t> logit_rows;
      for (int64_t idx = row; idx < row + n_rows; ++idx) {
        logit_rows.push_back(idx);
      }
      backend.observe(stays ? recorder : nullptr);
      if (!backend.forward(chunk, logit_rows, rows.at(first + done + row, n_rows), cancel)) {
        return false;
      }
      if (!stays) {
        backend.undo_last();
      }
      row += n_rows;
    }
    done += n_chunk;
  }
  return true;
}

}  // namespace

ProbeResult run_probe(Backend& oracle, Backend& backend, const Probe& probe,
                      const std::atomic<bool>* cancel) {
  const ModelDesc& desc = oracle.desc();
  const auto n_ids = static_cast<int64_t>(probe.ids.size());
  APR_CHECK(n_ids >= 1 && n_ids <= oracle.max_rows() && n_ids <= oracle.max_logit_rows(),
            "the oracle takes the probe at once");
  const int64_t n_positions = n_ids + (probe.with_decode ? 1 : 0);
  const int64_t n_tokens = std::min(desc.n_tokens, desc.vocab_rows);
  const bool has_experts = desc.moe.n_experts > 0;
  const CleanSequence clean_oracle(oracle), clean_backend(backend);
  RouteRecorder recorder;
  RouteReplay replay(recorder.trace(), route_bound(probe.exact));
  Rows expected(n_positions, desc.vocab_rows), found(n_positions, desc.vocab_rows);
  ProbeResult result;

  // The backend's part for `ids` from position `first` on, then the oracle's. Where the backend
  // has failed the oracle still runs: a model that gives no numbers at all is its own failure.
  const auto run_both = [&](std::span<const TokenId> ids, int64_t first) {
    if (probe.on_start) {
      probe.on_start("GPU");
    }
    try {
      result.cancelled =
          !feed(backend, ids, first, found, has_experts ? &recorder : nullptr, cancel);
    } catch (const Error& error) {
      result.failure = error;
    }
    if (result.cancelled) {
      return;
    }
    if (probe.on_start) {
      probe.on_start("CPU");
    }
    result.cancelled = !feed(oracle, ids, first, expected,
                             has_experts && !result.failure ? &replay : nullptr, cancel);
  };
  run_both(probe.ids, 0);
  if (probe.with_decode && !result.cancelled && !result.failure) {
    const GatePosition last =
        gate_position(expected.at(n_ids - 1, 1), expected.at(n_ids - 1, 1), n_tokens);
    const std::array<TokenId, 1> next{last.oracle_id};
    run_both(next, n_ids);
  }
  if (result.cancelled || result.failure) {
    return result;
  }
  for (int64_t position = 0; position < n_positions; ++position) {
    result.positions.push_back(
        gate_position(expected.at(position, 1), found.at(position, 1), n_tokens));
  }
  result.n_rerouted = replay.n_rerouted();
  result.wrong_route = replay.failure();
  return result;
}

}  // namespace apr
