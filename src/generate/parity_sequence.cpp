#include "generate/parity_sequence.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "apr/error.h"
#include "generate/logit_rows.h"
#include "generate/observation.h"

namespace apr {
namespace {

bool has_experts(const Backend& backend) {
  return backend.desc().moe.n_experts > 0;
}

[[noreturn]] void throw_interrupted() {
  throw Error(ErrorCode::kInterrupted, "interrupted");
}

// The logits of `wanted` positions of `ids`, from an empty context on.
LogitRows run_prompt(Backend& backend, std::span<const TokenId> ids,
                     const std::set<int64_t>& wanted, const ParityWatch& watch) {
  LogitRows rows;
  LogitRowCallbacks callbacks;
  callbacks.on_row = [&](int64_t position, std::span<const float> logits) {
    rows.emplace(position, std::vector<float>(logits.begin(), logits.end()));
  };
  callbacks.on_chunk = watch.on_chunk;
  backend.reset();
  if (!run_logit_rows(backend, ids, wanted, callbacks, watch.cancel)) {
    throw_interrupted();
  }
  return rows;
}

std::vector<float> run_token(Backend& backend, const TokenId& id, const ParityWatch& watch) {
  std::vector<float> logits(static_cast<size_t>(backend.desc().vocab_rows));
  const std::vector<int64_t> row = {0};
  if (!backend.forward({&id, 1}, row, logits, watch.cancel)) {
    throw_interrupted();
  }
  return logits;
}

// A prompt, then the rest of `ids` one by one.
LogitRows run_sequence(Backend& backend, std::span<const TokenId> ids, int64_t n_prompt,
                       const std::set<int64_t>& wanted, const ParityWatch& watch) {
  LogitRows rows = run_prompt(backend, ids.first(static_cast<size_t>(n_prompt)), wanted, watch);
  for (auto position = static_cast<size_t>(n_prompt); position < ids.size(); ++position) {
    rows.insert_or_assign(static_cast<int64_t>(position), run_token(backend, ids[position], watch));
  }
  return rows;
}

int64_t count_different(const LogitRows& a, const LogitRows& b) {
  return std::count_if(a.begin(), a.end(), [&](const auto& entry) {
    const std::vector<float>& other = b.at(entry.first);
    return std::memcmp(entry.second.data(), other.data(), other.size() * sizeof(float)) != 0;
  });
}

}  // namespace

void ParityOracle::run(std::span<const TokenId> ids, std::set<int64_t> wanted, int64_t n_greedy,
                       int64_t n_tokens) {
  ids_.assign(ids.begin(), ids.end());
  wanted_ = std::move(wanted);
  RouteRecorder recorder;
  std::optional<Observation> observation;
  if (has_experts(backend_)) {
    observation.emplace(backend_, recorder);
  }
  own_ = replayed_ = {};
  own_.rows = run_prompt(backend_, ids_, wanted_, watch_);
  for (int64_t step = 0; step < n_greedy; ++step) {
    const std::vector<float>& last = own_.rows.rbegin()->second;
    const auto end = last.begin() + n_tokens;
    ids_.push_back(static_cast<TokenId>(std::max_element(last.begin(), end) - last.begin()));
    const auto position = static_cast<int64_t>(ids_.size()) - 1;
    own_.rows.emplace(position, run_token(backend_, ids_.back(), watch_));
    wanted_.insert(position);
  }
  own_.n_positions = static_cast<int64_t>(ids_.size());
  own_.trace = recorder.trace();
}

void ParityOracle::replay(const RouteTrace& trace, int64_t n_positions) {
  RouteReplay replay(trace, bound_);
  const Observation observation(backend_, replay);
  const std::set<int64_t> wanted(wanted_.begin(), wanted_.lower_bound(n_positions));
  replayed_ = {};  // two passes at most are kept
  replayed_.rows =
      run_prompt(backend_, std::span(ids_).first(static_cast<size_t>(n_positions)), wanted, watch_);
  replayed_.n_positions = n_positions;
  replayed_.trace = replay.taken();
  replayed_.rerouted = replay.rerouted();
  replayed_.failure = replay.failure();
  ++n_replays_;
}

const LogitRows& ParityOracle::rows(const RouteTrace& trace, int64_t n_positions,
                                    RouteParity& routes) {
  routes.n_choices += n_positions * trace.n_ops();
  if (own_.trace.agrees(trace, n_positions)) {
    return own_.rows;
  }
  if (replayed_.n_positions < n_positions || !replayed_.trace.agrees(trace, n_positions)) {
    replay(trace, n_positions);
  }
  routes.rerouted.insert(replayed_.rerouted.begin(), replayed_.rerouted.lower_bound(n_positions));
  routes.failure = replayed_.failure;
  return replayed_.rows;
}

SequenceParity compare_sequence(ParityOracle& oracle, Backend& backend, int64_t n_prompt,
                                int64_t n_decode, const std::set<int64_t>& wanted, int64_t n_tokens,
                                const ParityWatch& watch) {
  SequenceParity parity;
  parity.n_prompt = n_prompt;
  parity.n_decode = n_decode;
  const int64_t n_positions = n_prompt + n_decode;
  const auto ids = oracle.ids().first(static_cast<size_t>(n_positions));
  const LogitRows found = run_sequence(backend, ids, n_prompt, wanted, watch);
  RouteRecorder recorder;
  if (has_experts(backend)) {
    const Observation observation(backend, recorder);
    const LogitRows watched = run_sequence(backend, ids, n_prompt, wanted, watch);
    parity.n_unsteady = count_different(found, watched);
  }
  const LogitRows& expected = oracle.rows(recorder.trace(), n_positions, parity.routes);
  for (const auto& [position, logits] : found) {
    LogitsParity at = compare_logits(expected.at(position), logits, n_tokens);
    at.position = position;
    at.is_decode = position >= n_prompt;
    parity.positions.push_back(at);
  }
  return parity;
}

}  // namespace apr
