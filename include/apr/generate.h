// From a prompt to text: prefill, decode, sampling, stopping.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apr/backend.h"
#include "apr/sampling.h"
#include "apr/tokenizer.h"

namespace apr {

// The values a sampling parameter may have, inclusive; its name is the flag without dashes.
struct SamplingRange {
  const char* name;  // "top-p"
  double min, max;
  double SamplingParams::*real;    // the parameter, one of the two
  int64_t SamplingParams::*whole;  // is null
};

// Every parameter but the seed (any value): what the Sampler accepts and the flags are made from.
std::span<const SamplingRange> sampling_ranges();

// Picks tokens: padded ids masked, then penalties, temperature == 0 ? argmax (lowest id of ties) :
// top-k, top-p, min-p, temperature, one Philox4x32-10(seed, step) draw. Equal logits give equal
// tokens on every machine, and on the GPU (kernels/sample_*.cu).
class Sampler {
 public:
  // Throws kUsage for a parameter out of its range.
  Sampler(const SamplingParams& params, int64_t n_tokens);
  // logits: [vocab_rows] f32; history: prompt and generated ids, oldest first; step: index of the
  // token being chosen. Throws kInference for a NaN or +inf, or when no finite logit is left.
  TokenId sample(std::span<const float> logits, std::span<const TokenId> history, int64_t step);

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };
  static bool is_better(const Candidate& a, const Candidate& b);
  void apply_penalties(std::span<const float> logits, std::span<const TokenId> history);
  void collect_candidates(std::span<const float> logits);
  void filter_candidates(float best, int bits);

  SamplingParams params_;
  int64_t n_tokens_;
  std::vector<float> adjusted_;        // [n_tokens] logits after penalties
  std::vector<TokenId> seen_;          // the window of the penalties, sorted
  std::vector<Candidate> candidates_;  // what the filters have left
  std::vector<uint64_t> weights_;      // [candidates] at the temperature
};

enum class FinishReason { kStop, kLength, kContext, kCancelled };
const char* finish_reason_name(FinishReason reason);  // "stop", "length", "length", "cancelled"

struct GenerateOptions {
  std::optional<int64_t> max_tokens;      // none: until the end of the answer or the context
  std::vector<std::string> stop_strings;  // the answer ends before the first one found
  SamplingParams sampling;
  bool ignore_eos = false;
  bool per_token_prefill = false;  // the prompt goes one token at a time
};

struct GenerateResult {
  std::string text;             // without the stop token or stop string
  std::vector<TokenId> tokens;  // generated ids, the stop token included
  int64_t prompt_tokens = 0;
  FinishReason finish_reason = FinishReason::kStop;
  double prefill_ms = 0.0;     // whole prompt, up to its logits
  double decode_ms = 0.0;      // from then to the last token
  double tok_per_sec() const;  // of decode alone; 0 with fewer than two tokens
};

struct GenerateCallbacks {
  // Text that is final, in order; never an incomplete UTF-8 character.
  std::function<void(TokenId id, const std::string& text)> on_token;
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_prefill;
};

// Throws kUsage for an empty prompt, kInvalidFormat (both counts named) for one that leaves no room
// for an answer in `context` positions.
void check_prompt_fits(int64_t n_prompt_tokens, int64_t context, const ModelDesc& desc);

// Feeds `prompt` to a reset backend and generates. Throws kInvalidFormat when the prompt does not
// fit the context (both counts named), kInference; `cancel` may be null.
GenerateResult generate(Backend& backend, const Tokenizer& tokenizer,
                        std::span<const TokenId> prompt, const GenerateOptions& options,
                        const GenerateCallbacks& callbacks, const std::atomic<bool>* cancel);

}  // namespace apr
