// A backend's logits beside the oracle's: of a prompt and of tokens fed one by one after it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apr/backend.h"
#include "generate/moe_routes.h"
#include "generate/parity_logits.h"

namespace apr {

using LogitRows = std::map<int64_t, std::vector<float>>;  // position -> [vocab_rows] f32

// How the functions below are interrupted, which they throw as kInterrupted, and what they report.
struct ParityWatch {
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_chunk;  // may be empty
};

// Of one prompt and what was fed after it: where the experts were not the oracle's own.
struct RouteParity {
  int64_t n_choices = 0;    // positions times layers with experts; 0: a model without
  ReroutedLayers rerouted;  // the oracle took these choices over
  std::string failure;      // the first choice that the bound does not allow; empty: none
};

// The oracle. One pass serves prompts of every length of a token sequence, attention being causal;
// one more runs where a backend chose other experts, for the positions up to that prompt's end.
class ParityOracle {
 public:
  // `backend`, lowered one op a stage, must outlive it; choices of experts within `route_bound` of
  // the oracle's are taken over.
  ParityOracle(Backend& backend, double route_bound, ParityWatch watch)
      : backend_(backend), bound_(route_bound), watch_(std::move(watch)) {}

  // Runs `ids`, then n_greedy tokens more, each the largest of the first n_tokens logits. Keeps the
  // logits of the positions `wanted` of ids and of those n_greedy.
  void run(std::span<const TokenId> ids, std::set<int64_t> wanted, int64_t n_greedy,
           int64_t n_tokens);

  std::span<const TokenId> ids() const { return ids_; }  // with those chosen by run()

  // The logits of the wanted positions before n_positions, and perhaps of more, given the experts
  // that a backend chose for them; what that needed is added to `routes`. Valid until the next
  // call.
  const LogitRows& rows(const RouteTrace& trace, int64_t n_positions, RouteParity& routes);

  int64_t n_replays() const { return n_replays_; }

 private:
  struct Pass {
    int64_t n_positions = 0;
    LogitRows rows;
    RouteTrace trace;  // what it went on with
    ReroutedLayers rerouted;
    std::string failure;
  };
  void replay(const RouteTrace& trace, int64_t n_positions);

  Backend& backend_;
  double bound_;
  ParityWatch watch_;
  std::vector<TokenId> ids_;
  std::set<int64_t> wanted_;
  Pass own_, replayed_;  // replayed_: the last one
  int64_t n_replays_ = 0;
};

struct SequenceParity {
  int64_t n_prompt = 0, n_decode = 0;
  std::vector<LogitsParity> positions;
  RouteParity routes;
  // Positions whose logits had other bits when the backend was watched: what chose the experts was
  // perhaps not what was compared.
  int64_t n_unsteady = 0;
};

// Runs the oracle's ids on `backend` (reset first): n_prompt of them in chunks, then n_decode one
// by one, and compares at `wanted` positions of the prompt and in decode. With experts it runs them
// once more, watched, to learn the choices. n_tokens: as compare_logits.
SequenceParity compare_sequence(ParityOracle& oracle, Backend& backend, int64_t n_prompt,
                                int64_t n_decode, const std::set<int64_t>& wanted, int64_t n_tokens,
                                const ParityWatch& watch);

}  // namespace apr
