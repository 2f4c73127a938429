#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>

#include "apr/error.h"
#include "apr/generate.h"
#include "apr/quant.h"
#include "generate/stop_matcher.h"
#include "support/scripted_backend.h"

namespace apr {
namespace {

using test::ScriptedBackend;

constexpr const char* kReplacement = "\xEF\xBF\xBD";
constexpr const char* kEmoji = "\xF0\x9F\x98\x80";

// The vocabulary of a committed model: byte-level, so any text has tokens.
const Tokenizer& tokenizer() {
  static const GgufFile file = GgufFile::open(APR_TEST_DATA "/models/tiny-qwen3-kmix.gguf",
                                              quant_type_layout, quant_type_label);
  static const Tokenizer instance(file);
  return instance;
}

// One token for each byte of `text`.
std::vector<TokenId> byte_tokens(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char byte : text) {
    const auto encoded = tokenizer().encode(std::string_view(&byte, 1), false);
    EXPECT_EQ(encoded.size(), 1U);
    ids.push_back(encoded.front());
  }
  return ids;
}

TokenId stop_id() {
  return tokenizer().stop_ids().front();
}

struct Outcome {
  GenerateResult result;
  std::vector<std::string> pieces;  // as on_token gave them
  std::string streamed() const {
    std::string text;
    for (const std::string& piece : pieces) {
      text += piece;
    }
    return text;
  }
};

Outcome run(ScriptedBackend& backend, const GenerateOptions& options = {},
            const std::atomic<bool>* cancel = nullptr,
            const std::vector<TokenId>& prompt = {10, 11, 12}) {
  Outcome outcome;
  GenerateCallbacks callbacks;
  callbacks.on_token = [&](TokenId, const std::string& text) { outcome.pieces.push_back(text); };
  outcome.result = generate(backend, tokenizer(), prompt, options, callbacks, cancel);
  EXPECT_EQ(outcome.pieces.size(), outcome.result.tokens.size());
  return outcome;
}

// Runs a script of one byte a token, with the stop token after it.
Outcome run_text(std::string_view text, const GenerateOptions& options = {}) {
  std::vector<TokenId> script = byte_tokens(text);
  script.push_back(stop_id());
  ScriptedBackend backend(tokenizer().vocab_size(), 1000, 8, script);
  Outcome outcome = run(backend, options);
  EXPECT_EQ(outcome.streamed(), outcome.result.text);
  return outcome;
}

GenerateOptions at_most(int64_t n_tokens) {
  GenerateOptions options;
  options.max_tokens = n_tokens;
  return options;
}

GenerateOptions stopping_at(std::vector<std::string> stop_strings) {
  GenerateOptions options;
  options.stop_strings = std::move(stop_strings);
  return options;
}

TEST(Generate, EndsAtTheStopTokenWithoutItsText) {
  for (const TokenId id : tokenizer().stop_ids()) {
    std::vector<TokenId> script = byte_tokens("hi");
    script.push_back(id);
    ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, script);
    const Outcome outcome = run(backend);
    EXPECT_EQ(outcome.result.text, "hi");
    EXPECT_EQ(outcome.result.tokens, script);
    EXPECT_EQ(outcome.result.finish_reason, FinishReason::kStop);
    EXPECT_EQ(outcome.result.prompt_tokens, 3);
    EXPECT_EQ(backend.calls.size(), 3U);  // prompt, h, i: the stop token is not fed back
  }
}

TEST(Generate, IgnoringTheStopTokenGoesOn) {
  std::vector<TokenId> script = {stop_id(), byte_tokens("x").front()};
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, script);
  GenerateOptions options = at_most(4);
  options.ignore_eos = true;
  EXPECT_EQ(run(backend, options).result.tokens.size(), 4U);
}

TEST(Generate, FeedsThePromptInChunksAndAsksForTheLastRowAlone) {
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 4, {stop_id()});
  const std::vector<TokenId> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<std::pair<int64_t, int64_t>> progress;
  GenerateCallbacks callbacks;
  callbacks.on_prefill = [&](int64_t done, int64_t total) { progress.emplace_back(done, total); };
  backend.forward(std::vector<TokenId>{5}, {}, {}, nullptr);  // an old sequence
  backend.calls.clear();
  generate(backend, tokenizer(), prompt, {}, callbacks, nullptr);
  ASSERT_EQ(backend.calls.size(), 3U);
  EXPECT_EQ(backend.calls[0].n_past, 0);
  EXPECT_EQ(backend.calls[0].ids, (std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_TRUE(backend.calls[0].logit_rows.empty());
  EXPECT_TRUE(backend.calls[1].logit_rows.empty());
  EXPECT_EQ(backend.calls[2].ids, (std::vector<TokenId>{9}));
  EXPECT_EQ(backend.calls[2].logit_rows, (std::vector<int64_t>{0}));
  EXPECT_EQ(progress, (std::vector<std::pair<int64_t, int64_t>>{{4, 9}, {8, 9}, {9, 9}}));
}

TEST(Generate, FeedsThePromptOneByOneWhereThatIsAskedFor) {
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 4, {stop_id()});
  GenerateOptions options;
  options.per_token_prefill = true;
  generate(backend, tokenizer(), std::vector<TokenId>{1, 2, 3}, options, {}, nullptr);
  ASSERT_EQ(backend.calls.size(), 3U);
  EXPECT_EQ(backend.calls[1].ids, (std::vector<TokenId>{2}));
  EXPECT_TRUE(backend.calls[1].logit_rows.empty());
  EXPECT_EQ(backend.calls[2].logit_rows, (std::vector<int64_t>{0}));
}

TEST(Generate, FeedsBackEachTokenAtItsPosition) {
  const std::vector<TokenId> script = byte_tokens("abc");
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, script);
  run(backend, at_most(3));
  ASSERT_EQ(backend.calls.size(), 3U);
  for (size_t idx = 1; idx < 3; ++idx) {
    EXPECT_EQ(backend.calls[idx].n_past, static_cast<int64_t>(2 + idx));
    EXPECT_EQ(backend.calls[idx].ids, std::vector<TokenId>{script[idx - 1]});
    EXPECT_EQ(backend.calls[idx].logit_rows, std::vector<int64_t>{0});
  }
}

TEST(Generate, MaxTokensIsExact) {
  for (const int64_t n : {1, 2, 5}) {
    ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, byte_tokens("z"));
    const Outcome outcome = run(backend, at_most(n));
    EXPECT_EQ(outcome.result.tokens.size(), static_cast<size_t>(n));
    EXPECT_EQ(outcome.result.text, std::string(static_cast<size_t>(n), 'z'));
    EXPECT_EQ(outcome.result.finish_reason, FinishReason::kLength);
    EXPECT_EQ(backend.calls.size(), static_cast<size_t>(n));
  }
}

TEST(Generate, ZeroTokensOnlyReadThePrompt) {
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, byte_tokens("z"));
  const Outcome outcome = run(backend, at_most(0));
  EXPECT_TRUE(outcome.result.tokens.empty());
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(backend.calls.size(), 1U);
}

TEST(Generate, StopsWhereTheContextIsFull) {
  ScriptedBackend backend(tokenizer().vocab_size(), 8, 8, byte_tokens("z"));
  const Outcome outcome = run(backend);
  EXPECT_EQ(outcome.result.tokens.size(), 5U);  // 3 + 5 = 8
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kContext);
  EXPECT_STREQ(finish_reason_name(outcome.result.finish_reason), "length");
}

TEST(Generate, RefusesAPromptThatLeavesNoRoomWithBothCounts) {
  for (const size_t n_prompt : {size_t{8}, size_t{9}, size_t{500}}) {
    ScriptedBackend backend(tokenizer().vocab_size(), 8, 4, {stop_id()});
    try {
      run(backend, {}, nullptr, std::vector<TokenId>(n_prompt, 10));
      ADD_FAILURE() << "took " << n_prompt;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFormat);
      const std::string message = error.what();
      EXPECT_NE(message.find("has " + std::to_string(n_prompt) + " tokens"), std::string::npos);
      EXPECT_NE(message.find("context holds 8"), std::string::npos);
    }
    EXPECT_TRUE(backend.calls.empty());
  }
  ScriptedBackend backend(tokenizer().vocab_size(), 8, 4, byte_tokens("z"));
  EXPECT_EQ(run(backend, {}, nullptr, std::vector<TokenId>(7, 10)).result.tokens.size(), 1U);
}

TEST(Generate, RefusesAnEmptyPrompt) {
  ScriptedBackend backend(tokenizer().vocab_size(), 8, 4, {stop_id()});
  EXPECT_THROW(run(backend, {}, nullptr, {}), Error);
}

TEST(Generate, HoldsACharacterBackUntilItIsWhole) {
  const Outcome outcome = run_text(std::string("a") + kEmoji + "b");
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"a", "", "", "", kEmoji, "b", ""}));
}

TEST(Generate, ACharacterCutByMaxTokensIsOneReplacement) {
  for (const int64_t n_bytes : {1, 2, 3}) {
    const Outcome outcome = run_text(std::string("a") + kEmoji, at_most(1 + n_bytes));
    EXPECT_EQ(outcome.result.text, std::string("a") + kReplacement) << n_bytes;
  }
  EXPECT_EQ(run_text(std::string("a") + kEmoji, at_most(5)).result.text, std::string("a") + kEmoji);
}

TEST(Generate, InvalidBytesBecomeReplacements) {
  EXPECT_EQ(run_text("a\xFF"
                     "b\x80")
                .result.text,
            std::string("a") + kReplacement + "b" + kReplacement);
}

TEST(Generate, EndsBeforeAStopStringAcrossTokens) {
  const Outcome outcome = run_text("one END two", stopping_at({"END"}));
  EXPECT_EQ(outcome.result.text, "one ");
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(outcome.result.tokens, byte_tokens("one END"));
}

TEST(Generate, TextThatOnlyLooksLikeAStopStringIsKept) {
  EXPECT_EQ(run_text("EN EE ENEND EN", stopping_at({"END"})).result.text, "EN EE EN");
  EXPECT_EQ(run_text("EN EE EN", stopping_at({"END"})).result.text, "EN EE EN");
  EXPECT_EQ(run_text("EN", stopping_at({"END"})).result.text, "EN");
  EXPECT_EQ(run_text("aEN",
                     [] {
                       GenerateOptions options = stopping_at({"END"});
                       options.max_tokens = 3;
                       return options;
                     }())
                .result.text,
            "aEN");
}

TEST(Generate, TheFirstOfSeveralStopStringsWins) {
  EXPECT_EQ(run_text("abcdef", stopping_at({"ef", "cd", "zz"})).result.text, "ab");
  EXPECT_EQ(run_text("abcdef", stopping_at({"bcde", "cd"})).result.text, "ab");
  EXPECT_EQ(run_text("x\n\ny", stopping_at({"\n\n"})).result.text, "x");
}

TEST(Generate, StopStringsOfWideCharacters) {
  const Outcome outcome = run_text(std::string("ab") + kEmoji + "c", stopping_at({kEmoji}));
  EXPECT_EQ(outcome.result.text, "ab");
  EXPECT_EQ(outcome.result.tokens.size(), 6U);  // all four bytes of the character
  // Another character with the same first bytes does not match.
  EXPECT_EQ(run_text("ab\xF0\x9F\x98\x81", stopping_at({kEmoji})).result.text,
            "ab\xF0\x9F\x98\x81");
}

TEST(Generate, RefusesStopStringsThatNeverMatch) {
  EXPECT_THROW(StopMatcher({""}), Error);
  EXPECT_THROW(StopMatcher({"ok", "\xF0\x9F"}), Error);
}

TEST(StopMatcher, EverySplitOfATextGivesTheSame) {
  const std::string text = "ababababacab";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      StopMatcher matcher({"abac", "ca"});
      std::string out = matcher.push(text.substr(0, first));
      out += matcher.push(text.substr(first, second - first));
      out += matcher.push(text.substr(second));
      out += matcher.flush();
      EXPECT_EQ(out, "ababab") << first << " " << second;
      EXPECT_TRUE(matcher.stopped());
    }
  }
}

TEST(StopMatcher, TheFirstCompleteStopStringCountsHoweverTextIsCut) {
  const std::string text = "abcdef";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    StopMatcher matcher({"bcde", "cd"});
    std::string out = matcher.push(text.substr(0, cut));
    out += matcher.push(text.substr(cut));
    EXPECT_EQ(out, "ab") << cut;
  }
}

TEST(Generate, CancelledInPrefillGivesNothing) {
  std::atomic<bool> cancel{false};
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 2, byte_tokens("z"));
  backend.after_forward = [&](int) { cancel = true; };
  const Outcome outcome = run(backend, {}, &cancel);
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(outcome.result.tokens.empty());
  EXPECT_EQ(backend.calls.size(), 1U);
}

TEST(Generate, CancelledInDecodeKeepsWhatThereIs) {
  std::atomic<bool> cancel{false};
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, byte_tokens("abEN"));
  backend.after_forward = [&](int n_calls) { cancel = n_calls == 4; };
  const Outcome outcome = run(backend, stopping_at({"END"}), &cancel);
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(outcome.streamed(), "ab");
  EXPECT_EQ(outcome.result.text, "abEN");  // what was held back is not lost
  EXPECT_EQ(outcome.result.tokens, byte_tokens("abEN"));
}

TEST(Generate, NonFiniteLogitsStopTheRun) {
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, byte_tokens("z"));
  backend.background = std::numeric_limits<float>::quiet_NaN();
  try {
    run(backend);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInference);
    EXPECT_NE(std::string(error.what()).find("non-finite logits"), std::string::npos);
  }
}

TEST(Generate, PenaltiesSeePromptAndAnswer) {
  // The script favours z by 10; seen twice (prompt and answer) it loses 12, and the best other is
  // the lowest id.
  const TokenId z = byte_tokens("z").front();
  ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, {z});
  GenerateOptions options = at_most(3);
  options.sampling.frequency_penalty = 6.0;
  options.ignore_eos = true;  // id 0 is a stop token of this vocabulary
  const Outcome outcome = run(backend, options, nullptr, {z});
  EXPECT_EQ(outcome.result.tokens, (std::vector<TokenId>{z, 0, 1}));
}

TEST(Generate, TheSameSeedGivesTheSameText) {
  const auto text_of = [](uint64_t seed) {
    ScriptedBackend backend(tokenizer().vocab_size(), 100, 8, byte_tokens("z"));
    GenerateOptions options = at_most(20);
    options.sampling.temperature = 50.0;
    options.sampling.top_k = 0;
    options.sampling.seed = seed;
    return run(backend, options).result.tokens;
  };
  EXPECT_EQ(text_of(1), text_of(1));
  EXPECT_NE(text_of(1), text_of(2));
}

TEST(Generate, RateIsOfDecodeAlone) {
  GenerateResult result;
  result.prefill_ms = 5000.0;
  result.decode_ms = 500.0;
  result.tokens = {1};
  EXPECT_EQ(result.tok_per_sec(), 0.0);
  result.tokens.assign(11, 1);
  EXPECT_DOUBLE_EQ(result.tok_per_sec(), 20.0);
}

}  // namespace
}  // namespace apr
