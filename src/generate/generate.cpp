#include "apr/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "apr/error.h"
#include "generate/logit_fault.h"
#include "generate/stop_matcher.h"

namespace apr {
namespace {

class Timer {
 public:
  double elapsed_ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

bool is_set(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

// Feeds the prompt in chunks; logits [vocab_rows] of its last token. False when cancelled.
bool prefill(Backend& backend, std::span<const TokenId> prompt, std::span<float> logits,
             bool per_token, const GenerateCallbacks& callbacks, const std::atomic<bool>* cancel) {
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  for (int64_t done = 0; done < n_prompt;) {
    const int64_t n_rows = per_token ? 1 : std::min(backend.max_rows(), n_prompt - done);
    const bool is_last = done + n_rows == n_prompt;
    const std::array<int64_t, 1> last_row{n_rows - 1};
    if (is_set(cancel) ||
        !backend.forward(prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(n_rows)),
                         is_last ? std::span<const int64_t>(last_row) : std::span<const int64_t>(),
                         is_last ? logits : std::span<float>(), cancel)) {
      return false;
    }
    done += n_rows;
    if (callbacks.on_prefill) {
      callbacks.on_prefill(done, n_prompt);
    }
  }
  return true;
}

// The text still held back when nothing more comes.
std::string flush_text(StreamDecoder& decoder, StopMatcher& matcher) {
  std::string text = matcher.push(decoder.flush());
  text += matcher.flush();
  return text;
}

// What ends the answer after the token just chosen, if anything does.
std::optional<FinishReason> finish_after(const GenerateResult& result, bool is_stop,
                                         const GenerateOptions& options, int64_t context) {
  const auto n_generated = static_cast<int64_t>(result.tokens.size());
  if (is_stop) {
    return FinishReason::kStop;
  }
  if (options.max_tokens && n_generated >= *options.max_tokens) {
    return FinishReason::kLength;
  }
  if (result.prompt_tokens + n_generated >= context) {
    return FinishReason::kContext;
  }
  return std::nullopt;
}

// Where the tokens of an answer come from: the backend, if it chooses them itself, else its logits
// and the sampler.
class TokenSource {
 public:
  // stop_ids: those that end the answer. All that is given must outlive the source.
  TokenSource(Backend& backend, const GenerateOptions& options, std::span<const TokenId> stop_ids)
      : backend_(backend),
        options_(options),
        stop_ids_(stop_ids),
        n_tokens_(std::min(backend.desc().n_tokens, backend.desc().vocab_rows)),
        sampler_(options.sampling, n_tokens_),
        logits_(static_cast<size_t>(backend.desc().vocab_rows)) {}

  // Logits [vocab_rows] of the last token fed.
  std::span<float> logits() { return logits_; }

  // The first token of the answer, from the logits of the prompt.
  TokenId first(std::span<const TokenId> history) { return sampler_.sample(logits_, history, 0); }

  // Token `step` >= 1 of the answer; the last of `history` has not been fed. Nothing when
  // cancelled.
  std::optional<TokenId> next(std::span<const TokenId> history, int64_t step,
                              const std::atomic<bool>* cancel) {
    if (is_set(cancel)) {
      return std::nullopt;
    }
    if (step == 1) {
      on_device_ = backend_.begin_decode(decode_options(history));
    }
    if (on_device_) {
      const DecodedToken token = backend_.next_token();
      if (token.fault) {
        throw_logit_fault(*token.fault, n_tokens_, step);
      }
      return token.id;
    }
    const std::array<int64_t, 1> row{0};
    if (!backend_.forward(history.last(1), row, logits_, cancel)) {
      return std::nullopt;
    }
    return sampler_.sample(logits_, history, step);
  }

  // The answer is over.
  void end() {
    if (on_device_) {
      backend_.end_decode();
    }
  }

 private:
  // Of an answer of one token so far, which did not finish it: there is room for another.
  DecodeOptions decode_options(std::span<const TokenId> history) const {
    DecodeOptions decode;
    decode.sampling = options_.sampling;
    decode.history = history;
    decode.step = 1;
    decode.max_tokens = backend_.context() - static_cast<int64_t>(history.size());
    if (options_.max_tokens) {
      decode.max_tokens = std::min(decode.max_tokens, *options_.max_tokens - 1);
    }
    decode.stop_ids = stop_ids_;
    return decode;
  }

  Backend& backend_;
  const GenerateOptions& options_;
  std::span<const TokenId> stop_ids_;
  int64_t n_tokens_;
  Sampler sampler_;
  std::vector<float> logits_;  // [vocab_rows] f32
  bool on_device_ = false;
};

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
    case FinishReason::kContext:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  APR_CHECK(false, "a finish reason");
}

double GenerateResult::tok_per_sec() const {
  constexpr double kMsPerSecond = 1000.0;
  return tokens.size() < 2 || decode_ms <= 0.0
             ? 0.0
             : static_cast<double>(tokens.size() - 1) * kMsPerSecond / decode_ms;
}

void check_prompt_fits(int64_t n_prompt_tokens, int64_t context, const ModelDesc& desc) {
  if (n_prompt_tokens == 0) {
    throw Error(ErrorCode::kUsage, "the prompt is empty: it has no token to continue from");
  }
  if (n_prompt_tokens >= context) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("the prompt has {} tokens and the context holds {}, the answer "
                            "included; shorten the prompt or raise the context (the model's is "
                            "{})",
                            n_prompt_tokens, context, desc.context_length));
  }
}

GenerateResult generate(Backend& backend, const Tokenizer& tokenizer,
                        std::span<const TokenId> prompt, const GenerateOptions& options,
                        const GenerateCallbacks& callbacks, const std::atomic<bool>* cancel) {
  check_prompt_fits(static_cast<int64_t>(prompt.size()), backend.context(), backend.desc());
  StopMatcher matcher(options.stop_strings);
  StreamDecoder decoder(tokenizer);
  const std::span<const TokenId> stop_ids =
      options.ignore_eos ? std::span<const TokenId>() : tokenizer.stop_ids();
  TokenSource source(backend, options, stop_ids);
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  std::vector<TokenId> history(prompt.begin(), prompt.end());

  backend.reset();
  const Timer prefill_timer;
  const bool is_prefilled =
      prefill(backend, prompt, source.logits(), options.per_token_prefill, callbacks, cancel);
  result.prefill_ms = prefill_timer.elapsed_ms();
  if (!is_prefilled) {
    result.finish_reason = FinishReason::kCancelled;
    return result;
  }
  if (options.max_tokens && *options.max_tokens <= 0) {
    result.finish_reason = FinishReason::kLength;
    return result;
  }

  const Timer decode_timer;
  std::optional<FinishReason> finish;
  std::optional<TokenId> id = source.first(history);
  while (!finish) {
    history.push_back(*id);
    result.tokens.push_back(*id);
    const bool is_stop = std::find(stop_ids.begin(), stop_ids.end(), *id) != stop_ids.end();
    std::string text = is_stop ? std::string() : matcher.push(decoder.push(*id));
    finish = finish_after(result, is_stop || matcher.stopped(), options, backend.context());
    if (finish) {
      text += flush_text(decoder, matcher);
    }
    result.text += text;
    result.decode_ms = decode_timer.elapsed_ms();
    if (callbacks.on_token) {
      callbacks.on_token(*id, text);
    }
    if (!finish) {
      id = source.next(history, static_cast<int64_t>(result.tokens.size()), cancel);
      if (!id) {
        finish = FinishReason::kCancelled;
        result.text += flush_text(decoder, matcher);
      }
    }
  }
  source.end();
  result.finish_reason = *finish;
  return result;
}

}  // namespace apr
