#include "generate/gate_probe.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "generate/moe_routes.h"

namespace apr {
namespace {

// Empties a backend's sequence and ends its observation at the end of the scope.
class CleanSequence {
 public:
  explicit CleanSequence(Backend& backend) : backend_(backend) {}
  ~CleanSequence() {
    try {
      backend_.observe(nullptr);
      backend_.reset();
    } catch (const Error&) {  // of a card that has failed: the next step says so
    }
  }
  CleanSequence(const CleanSequence&) = delete;
  CleanSequence& operator=(const CleanSequence&) = delete;

 private:
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

// What sees and ends the forwards of a backend.
struct Watch {
  StepObserver* observer;  // sees each batch once, when it stays; may be null
  const std::atomic<bool>* cancel;
};

// Feeds `batch` and fills `rows` from position `first` on with the logits of its first n_seen rows.
// False when cancelled.
bool feed_batch(Backend& backend, std::span<const TokenId> batch, int64_t n_seen, int64_t first,
                Rows& rows, const Watch& watch) {
  for (int64_t row = 0; row < n_seen;) {
    const int64_t n_rows = std::min(backend.max_logit_rows(), n_seen - row);
    const bool stays = row + n_rows == n_seen;
    std::vector<int64_t> logit_rows(static_cast<size_t>(n_rows));
    std::iota(logit_rows.begin(), logit_rows.end(), row);
    backend.observe(stays ? watch.observer : nullptr);
    if (!backend.forward(batch, logit_rows, rows.at(first + row, n_rows), watch.cancel)) {
      return false;
    }
    if (!stays) {
      backend.undo_last();
    }
    row += n_rows;
  }
  return true;
}

// Feeds `ids` in batches and fills `rows` from position `first` on. False when cancelled.
bool feed(Backend& backend, std::span<const TokenId> ids, int64_t first, Rows& rows,
          const Watch& watch) {
  const auto n_ids = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < n_ids;) {
    const int64_t n_batch = std::min(backend.max_rows(), n_ids - done);
    const auto batch = ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n_batch));
    if (!feed_batch(backend, batch, n_batch, first + done, rows, watch)) {
      return false;
    }
    done += n_batch;
  }
  return true;
}

// `ids` again and again, or the first of them: n_rows.
std::vector<TokenId> repeated(std::span<const TokenId> ids, int64_t n_rows) {
  std::vector<TokenId> batch;
  for (size_t idx = 0; idx < static_cast<size_t>(n_rows); ++idx) {
    batch.push_back(ids[idx % ids.size()]);
  }
  return batch;
}

// One run of a probe; the steps are those of run_probe.
class ProbeRun {
 public:
  ProbeRun(Backend& oracle, Backend& backend, const Probe& probe, const std::atomic<bool>* cancel)
      : oracle_(oracle),
        backend_(backend),
        probe_(probe),
        cancel_(cancel),
        n_ids_(static_cast<int64_t>(probe.ids.size())),
        n_tokens_(std::min(oracle.desc().n_tokens, oracle.desc().vocab_rows)),
        has_experts_(oracle.desc().moe.n_experts > 0),
        expected_(n_ids_ + 1, oracle.desc().vocab_rows),
        found_(n_ids_ + 1, oracle.desc().vocab_rows) {}

  ProbeResult run();

 private:
  // A sequence of the backend whose choices of experts the oracle takes over.
  struct Routes {
    explicit Routes(bool exact) : replay(recorder.trace(), route_bound(exact)) {}
    RouteRecorder recorder;
    RouteReplay replay;
  };

  bool run_batch(int64_t n_rows, std::vector<GatePosition>& positions);
  bool run_both(std::span<const TokenId> ids, int64_t first, Routes& routes);
  void judge(int64_t n_positions, std::vector<GatePosition>& positions);
  void keep(const Routes& routes);
  void say(const char* whose) const {
    if (probe_.on_start) {
      probe_.on_start(whose);
    }
  }

  Backend& oracle_;
  Backend& backend_;
  const Probe& probe_;
  const std::atomic<bool>* cancel_;
  int64_t n_ids_, n_tokens_;
  bool has_experts_;
  Rows expected_, found_;
  ProbeResult result_;
};

// The backend's part for `ids` from position `first` on, then the oracle's. Where the backend has
// failed the oracle still runs: a model that gives no numbers at all is its own failure. False
// when cancelled.
bool ProbeRun::run_both(std::span<const TokenId> ids, int64_t first, Routes& routes) {
  say("GPU");
  try {
    if (first == 0) {
      backend_.reset();
    }
    if (!feed(backend_, ids, first, found_, {has_experts_ ? &routes.recorder : nullptr, cancel_})) {
      return false;
    }
  } catch (const Error& error) {
    result_.failure = error;
  }
  say("CPU");
  StepObserver* replay = has_experts_ && !result_.failure ? &routes.replay : nullptr;
  return feed(oracle_, ids, first, expected_, {replay, cancel_});
}

// One batch of n_rows, the ids or some of them first. After the oracle's logits of the ids are
// known; they stay, but for choices of experts. False when cancelled.
bool ProbeRun::run_batch(int64_t n_rows, std::vector<GatePosition>& positions) {
  const int64_t n_seen = std::min(n_rows, n_ids_);
  say("GPU");
  Routes routes(probe_.exact);
  try {
    backend_.reset();
    if (!feed_batch(backend_, repeated(probe_.ids, n_rows), n_seen, 0, found_,
                    {has_experts_ ? &routes.recorder : nullptr, cancel_})) {
      return false;
    }
  } catch (const Error& error) {
    result_.failure = error;
    return true;
  }
  if (has_experts_) {
    say("CPU");
    oracle_.reset();
    if (!feed(oracle_, probe_.ids.first(static_cast<size_t>(n_seen)), 0, expected_,
              {&routes.replay, cancel_})) {
      return false;
    }
  }
  judge(n_seen, positions);
  keep(routes);
  return true;
}

void ProbeRun::judge(int64_t n_positions, std::vector<GatePosition>& positions) {
  for (int64_t position = 0; position < n_positions; ++position) {
    positions.push_back(
        gate_position(expected_.at(position, 1), found_.at(position, 1), n_tokens_));
  }
}

void ProbeRun::keep(const Routes& routes) {
  result_.n_rerouted += routes.replay.n_rerouted();
  if (result_.wrong_route.empty()) {
    result_.wrong_route = routes.replay.failure();
  }
}

ProbeResult ProbeRun::run() {
  const CleanSequence clean_oracle(oracle_), clean_backend(backend_);
  oracle_.reset();
  Routes routes(probe_.exact);
  bool goes_on = run_both(probe_.ids, 0, routes);
  if (goes_on && probe_.with_decode && !result_.failure) {
    const auto last = expected_.at(n_ids_ - 1, 1);
    const std::array<TokenId, 1> next{gate_position(last, last, n_tokens_).oracle_id};
    goes_on = run_both(next, n_ids_, routes);
  }
  if (goes_on && !result_.failure) {
    judge(n_ids_ + (probe_.with_decode ? 1 : 0), result_.positions);
    keep(routes);
  }
  for (const int64_t n_rows : probe_.batch_rows) {
    if (goes_on && !result_.failure) {
      goes_on = run_batch(n_rows, result_.batches.emplace_back());
    }
  }
  result_.cancelled = !goes_on;
  return result_;
}

}  // namespace

ProbeResult run_probe(Backend& oracle, Backend& backend, const Probe& probe,
                      const std::atomic<bool>* cancel) {
  const auto n_ids = static_cast<int64_t>(probe.ids.size());
  APR_CHECK(n_ids >= 1 && n_ids <= oracle.max_rows() && n_ids <= oracle.max_logit_rows(),
            "the oracle takes the probe at once");
  APR_CHECK(
      std::all_of(probe.batch_rows.begin(), probe.batch_rows.end(),
                  [&](int64_t n_rows) { return n_rows >= 1 && n_rows <= backend.max_rows(); }),
      "the backend takes each batch");
  return ProbeRun(oracle, backend, probe, cancel).run();
}

}  // namespace apr
