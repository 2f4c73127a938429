// The verdicts before a run on the GPU: on one token when the model is loaded (the load gate), and
// on the prompt (the guard). Pure; rules and constants are those of the family `apr` belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apr/tokenizer.h"

namespace apr {

constexpr double kGateCosine = 0.98;     // the load gate passes from here on; so does another token
constexpr double kGuardCosine = 0.95;    // the guard rejects below
constexpr double kRetryCosine = 0.90;    // below, nothing is tried again
constexpr int64_t kProbeTokens = 64;     // of the prompt, its last
constexpr int64_t kFewRows[] = {8, 16};  // of batches: other kernels take so few
constexpr int64_t kWideRows = 192;       // of a batch, past the bounds where its kernels change

// Logits of one position on the GPU beside the oracle's.
struct GatePosition {
  double cosine = 0.0;
  TokenId oracle_id = -1, id = -1;  // the largest logit of each, the lowest id of ties
  double max_abs_difference = 0.0;
};

// Of two rows [vocab_rows] f32: the cosine in f64, 0 where a norm is below 1e-12 or a value is not
// finite; the largest logits are of the first `n_tokens`.
GatePosition gate_position(std::span<const float> oracle, std::span<const float> found,
                           int64_t n_tokens);

enum class LoadVerdict { kPass, kRetry, kFail };

// can_retry: there are kernels of higher precision than those that were measured.
LoadVerdict judge_load(double cosine, bool can_retry);

// Of what is judged: all positions but the first of each, which the load gate has judged.
struct GuardVerdict {
  bool rejected = false;
  int64_t n_judged = 0;
  int64_t first_bad = 0;    // position in the probe, where rejected
  GatePosition bad = {};    // of that position
  double min_cosine = 1.0;  // of all that are judged
};

// Rejects at the first position, of the probe as it is, then of each batch, whose cosine is below
// kGuardCosine, or whose largest logit is another token's with a cosine below kGateCosine.
GuardVerdict judge_guard(std::span<const GatePosition> positions,
                         std::span<const std::vector<GatePosition>> batches = {});

// Whether a rejection may be the doing of FP8 products: then FP16 is measured.
bool may_retry_without_fp8(const GuardVerdict& verdict, bool is_batched, bool is_fp8);

// "position 3 (argmax 5 != 7, cosine 0.912345); min cosine 0.900000"
std::string describe_rejection(const GuardVerdict& verdict);

// What the load gate feeds: the token that begins a text, else 1.
TokenId gate_token(std::optional<TokenId> bos);

// The last kProbeTokens of the prompt; of an empty prompt the token that begins a text, if the
// model has one. A probe of fewer than two tokens is not judged.
std::vector<TokenId> guard_probe(std::span<const TokenId> prompt, std::optional<TokenId> bos);

// Rows of the batch in which the probe stands for a prompt of n_prompt tokens, which goes in
// batches of max_rows: kernels depend on that number up to kWideRows.
int64_t guard_batch_rows(int64_t n_prompt, int64_t max_rows);

// Batches that the guard runs beside a probe of n_probe tokens: its first tokens as few at a time
// as other kernels take, and all in a batch of guard_batch_rows where that is larger.
std::vector<int64_t> guard_batches(int64_t n_probe, int64_t n_prompt, int64_t max_rows);

// Whether a verdict on batches of up to `judged_rows` is one on those of `rows`: of as many, of
// fewer, and from kWideRows on of all. Which kernels take how many rows below that also depends on
// types and on what is faster on the card, so that no number between is a safe bound.
bool covers_rows(int64_t judged_rows, int64_t rows);

}  // namespace apr
