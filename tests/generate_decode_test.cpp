// generate() over a backend that decodes a step ahead: the same answer as over one that gives
// logits, and the step in flight taken back.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "apr/error.h"
#include "apr/generate.h"
#include "apr/quant.h"
#include "support/decoding_backend.h"

namespace apr {
namespace {

using test::DecodingBackend;

const Tokenizer& decode_tokenizer() {
  static const GgufFile file = GgufFile::open(APR_TEST_DATA "/models/tiny-qwen3-kmix.gguf",
                                              quant_type_layout, quant_type_label);
  static const Tokenizer instance(file);
  return instance;
}

std::vector<TokenId> script_of(std::string_view text, bool with_stop_id = true) {
  std::vector<TokenId> ids;
  for (const char byte : text) {
    ids.push_back(decode_tokenizer().encode(std::string_view(&byte, 1), false).front());
  }
  if (with_stop_id) {
    ids.push_back(decode_tokenizer().stop_ids().front());
  }
  return ids;
}

struct DecodeOutcome {
  GenerateResult result;
  std::vector<std::string> pieces;
};

const std::vector<TokenId> kPrompt{10, 11, 12};

DecodeOutcome run(DecodingBackend& backend, const GenerateOptions& options,
                  const std::atomic<bool>* cancel = nullptr,
                  const std::function<void(size_t n_tokens)>& on_token = {}) {
  DecodeOutcome outcome;
  GenerateCallbacks callbacks;
  callbacks.on_token = [&](TokenId, const std::string& text) {
    outcome.pieces.push_back(text);
    if (on_token) {
      on_token(outcome.pieces.size());
    }
  };
  outcome.result = generate(backend, decode_tokenizer(), kPrompt, options, callbacks, cancel);
  return outcome;
}

// What holds after every answer: each id was fed at its place, and the position is that of the
// tokens handed out.
void expect_consistent(const DecodingBackend& backend, const GenerateResult& result) {
  EXPECT_FALSE(backend.is_decoding());
  const auto n_tokens = static_cast<int64_t>(result.tokens.size());
  EXPECT_EQ(backend.n_past(), static_cast<int64_t>(kPrompt.size()) + n_tokens - 1);
  for (const DecodingBackend::Fed& fed : backend.fed) {
    const int64_t idx = fed.position - static_cast<int64_t>(kPrompt.size());
    ASSERT_GE(idx, 0);
    ASSERT_LT(idx, n_tokens) << "only ids of the answer are fed";
    EXPECT_EQ(fed.id, result.tokens[static_cast<size_t>(idx)]);
    EXPECT_LT(fed.position, backend.context());
  }
}

// The same script and options over a backend that gives logits.
DecodeOutcome run_both(std::string_view text, const GenerateOptions& options,
                       int64_t context = 1000, int64_t n_taken_back = -1,
                       bool with_stop_id = true) {
  DecodingBackend host(decode_tokenizer().vocab_size(), context, 8, script_of(text, with_stop_id));
  host.decodes = false;
  DecodingBackend device(decode_tokenizer().vocab_size(), context, 8,
                         script_of(text, with_stop_id));
  const DecodeOutcome expected = run(host, options);
  const DecodeOutcome found = run(device, options);
  EXPECT_EQ(found.result.text, expected.result.text);
  EXPECT_EQ(found.result.tokens, expected.result.tokens);
  EXPECT_EQ(found.result.finish_reason, expected.result.finish_reason);
  EXPECT_EQ(found.result.prompt_tokens, expected.result.prompt_tokens);
  EXPECT_EQ(found.pieces, expected.pieces);
  EXPECT_EQ(device.calls.size(), 1U) << "only the prompt is a forward";
  EXPECT_EQ(device.n_ended, found.result.tokens.size() > 1 ? 1 : 0);
  if (n_taken_back >= 0) {
    EXPECT_EQ(device.n_taken_back, n_taken_back);
  }
  expect_consistent(device, found.result);
  return found;
}

TEST(GenerateDecode, AStopIdEndsTheAnswer) {
  const DecodeOutcome outcome = run_both("hello", {}, 1000, 0);
  EXPECT_EQ(outcome.result.text, "hello");
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(run_both("", {}).result.tokens.size(), 1U);  // at once: nothing is decoded
  EXPECT_EQ(run_both("h", {}).result.tokens.size(), 2U);
}

TEST(GenerateDecode, IgnoringTheStopIdGoesOn) {
  GenerateOptions options;
  options.ignore_eos = true;
  options.max_tokens = 9;
  EXPECT_EQ(run_both("hi", options).result.tokens.size(), 9U);
}

TEST(GenerateDecode, MaxTokensIsExactAndNoStepRunsInVain) {
  for (const int64_t n : {1, 2, 3, 7}) {
    GenerateOptions options;
    options.max_tokens = n;
    const DecodeOutcome outcome = run_both("zzzzzzzzzzzzzzz", options, 1000, 0);
    EXPECT_EQ(outcome.result.tokens.size(), static_cast<size_t>(n));
    EXPECT_EQ(outcome.result.finish_reason, FinishReason::kLength);
  }
}

TEST(GenerateDecode, StopsWhereTheContextIsFull) {
  for (const int64_t context : {4, 5, 6, 12}) {
    const DecodeOutcome outcome = run_both("zzzzzzzzzzzzzzz", {}, context, 0);
    EXPECT_EQ(outcome.result.tokens.size(), static_cast<size_t>(context) - 3);
    EXPECT_EQ(outcome.result.finish_reason, FinishReason::kContext);
  }
}

TEST(GenerateDecode, AStopStringTakesTheStepInFlightBack) {
  GenerateOptions options;
  options.stop_strings = {"END"};
  const DecodeOutcome outcome = run_both("one END two", options, 1000, 1);
  EXPECT_EQ(outcome.result.text, "one ");
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kStop);
}

TEST(GenerateDecode, SamplesAsTheHostDoes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GenerateOptions options;
    options.max_tokens = 30;
    options.ignore_eos = true;
    options.sampling.temperature = 8.0;
    options.sampling.top_k = seed % 2 == 0 ? 0 : 40;
    options.sampling.frequency_penalty = 0.5;
    options.sampling.repeat_last_n = static_cast<int64_t>(seed) - 1;
    options.sampling.seed = seed;
    run_both("some text that is the script", options);
  }
}

TEST(GenerateDecode, CancelTakesTheStepInFlightBack) {
  for (const size_t n_before : {size_t{1}, size_t{2}, size_t{4}}) {
    std::atomic<bool> cancel{false};
    DecodingBackend backend(decode_tokenizer().vocab_size(), 100, 8, script_of("abENxyz"));
    GenerateOptions options;
    options.stop_strings = {"END"};
    const DecodeOutcome outcome =
        run(backend, options, &cancel, [&](size_t n_tokens) { cancel = n_tokens == n_before; });
    EXPECT_EQ(outcome.result.finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(outcome.result.tokens.size(), n_before);
    EXPECT_EQ(outcome.result.text, std::string("abEN").substr(0, n_before));
    EXPECT_EQ(backend.n_taken_back, n_before == 1 ? 0 : 1);  // decoding begins at the second token
    expect_consistent(backend, outcome.result);
  }
}

// The token that was being waited for is still handed out, as one from forward() would be.
TEST(GenerateDecode, CancelDuringAStepEndsAfterIt) {
  std::atomic<bool> cancel{false};
  DecodingBackend backend(decode_tokenizer().vocab_size(), 100, 8, script_of("abcdef"));
  backend.before_token = [&](int64_t n_taken) { cancel = n_taken == 1; };
  const DecodeOutcome outcome = run(backend, {}, &cancel);
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(outcome.result.text, "abc");
  expect_consistent(backend, outcome.result);
}

TEST(GenerateDecode, AFaultSaysWhatTheSamplerSays) {
  DecodingBackend backend(decode_tokenizer().vocab_size(), 100, 8, script_of("abcdef"));
  backend.fault_at = 2;  // steps 1 and 2 are good
  try {
    run(backend, {});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInference);
    EXPECT_STREQ(error.what(),
                 "non-finite logits: +inf for token 17 at step 3; the computation is broken, no "
                 "token can be chosen");
  }
}

TEST(GenerateDecode, AFailedAnswerDoesNotPoisonTheNext) {
  DecodingBackend backend(decode_tokenizer().vocab_size(), 100, 8, script_of("abcdefgh"));
  EXPECT_THROW(run(backend, {}, nullptr,
                   [](size_t n_tokens) {
                     if (n_tokens == 3) {
                       throw std::runtime_error("a closed pipe");
                     }
                   }),
               std::runtime_error);
  EXPECT_TRUE(backend.is_decoding());
  backend.fed.clear();
  const DecodeOutcome outcome = run(backend, {});
  EXPECT_EQ(outcome.result.finish_reason, FinishReason::kStop);
  expect_consistent(backend, outcome.result);
}

}  // namespace
}  // namespace apr
