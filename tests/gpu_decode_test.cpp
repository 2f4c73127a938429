// Decoding ahead on the card: the tokens are those that the host samples from the same logits, and
// a step that nobody asked for leaves no trace.
#include <gtest/gtest.h>

#include "apr/generate.h"
#include "support/gpu_model.h"
#include "support/host_sampling.h"

namespace apr {
namespace {

using cuda::CudaBackend;
using cuda::CudaBackendOptions;

class GpuDecode : public test::GpuModelTest {
 protected:
  void set_up_model() override { tokenizer_ = std::make_unique<Tokenizer>(model_->file()); }

  std::unique_ptr<CudaBackend> gpu(const CudaBackendOptions& options = {}) const {
    return GpuModelTest::gpu(256, options);
  }

  std::vector<float> feed(Backend& backend, const std::vector<TokenId>& ids) const {
    std::vector<float> logits(static_cast<size_t>(backend.desc().vocab_rows));
    const std::vector<int64_t> last{static_cast<int64_t>(ids.size()) - 1};
    backend.forward(ids, last, logits, nullptr);
    return logits;
  }

  // Ways to sample: greedy, and with everything on.
  static std::vector<SamplingParams> ways() {
    std::vector<SamplingParams> params(4);
    params[1].temperature = 0.9;
    params[1].top_p = 0.9;
    params[2].temperature = 1.5;
    params[2].top_k = 0;
    params[2].top_p = 0.97;
    params[2].min_p = 0.01;
    params[2].repeat_penalty = 1.2;
    params[2].frequency_penalty = 0.1;
    params[2].repeat_last_n = 7;
    params[3].presence_penalty = 0.5;
    params[3].repeat_last_n = -1;
    return params;
  }

  // Appends `n` tokens to the history, decoded ahead.
  static void decode(Backend& backend, const SamplingParams& params, std::vector<TokenId>& history,
                     int64_t n, int64_t max_tokens) {
    DecodeOptions options;
    const std::vector<TokenId> past = history;
    options.sampling = params;
    options.history = past;
    options.step = 1;
    options.max_tokens = max_tokens;
    ASSERT_TRUE(backend.begin_decode(options));
    for (int64_t token = 0; token < n; ++token) {
      const DecodedToken decoded = backend.next_token();
      ASSERT_FALSE(decoded.fault);
      history.push_back(decoded.id);
    }
    backend.end_decode();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(GpuDecode, AnswersAreThoseOfTheHostsSampler) {
  for (const bool exact : {false, true}) {
    const auto backend = gpu({.exact = exact});
    test::HostSampling on_host(*backend);
    for (const SamplingParams& params : ways()) {
      for (const std::string stop : {"", "e"}) {
        GenerateOptions options;
        options.max_tokens = 60;
        options.sampling = params;
        options.ignore_eos = stop.empty();
        if (!stop.empty()) {
          options.stop_strings = {stop};
        }
        const std::vector<TokenId> prompt = tokenizer_->encode("the answer is", false);
        const GenerateResult expected =
            generate(on_host, *tokenizer_, prompt, options, {}, nullptr);
        const GenerateResult found = generate(*backend, *tokenizer_, prompt, options, {}, nullptr);
        EXPECT_EQ(found.tokens, expected.tokens) << "temperature " << params.temperature;
        EXPECT_EQ(found.text, expected.text);
        EXPECT_EQ(found.finish_reason, expected.finish_reason);
        EXPECT_EQ(backend->n_past(), static_cast<int64_t>(prompt.size() + found.tokens.size()) - 1);
      }
    }
  }
}

TEST_P(GpuDecode, TheContextEndsTheAnswer) {
  const auto backend = gpu();
  test::HostSampling on_host(*backend);
  GenerateOptions options;
  options.ignore_eos = true;
  const std::vector<TokenId> prompt = tokenizer_->encode("one two", false);
  const GenerateResult expected = generate(on_host, *tokenizer_, prompt, options, {}, nullptr);
  const GenerateResult found = generate(*backend, *tokenizer_, prompt, options, {}, nullptr);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.finish_reason, FinishReason::kContext);
  EXPECT_EQ(found.tokens.size() + prompt.size(), 256U);
}

// With a step in flight taken back, the next logits are bit for bit those of a backend that never
// ran it.
TEST_P(GpuDecode, AStepTakenBackLeavesNoTrace) {
  const auto ahead = gpu(), exactly = gpu();
  std::vector<TokenId> history = tokenizer_->encode("to be or not to be", false), same = history;
  feed(*ahead, history);
  feed(*exactly, same);
  history.push_back(5);
  same.push_back(5);
  decode(*ahead, {}, history, 10, 100);  // an eleventh is in flight
  decode(*exactly, {}, same, 10, 10);
  ASSERT_EQ(history, same);
  EXPECT_EQ(ahead->n_past(), exactly->n_past());
  // Another token than the one the step in flight fed.
  const std::vector<TokenId> other{(history.back() + 1) % 100};
  EXPECT_EQ(feed(*ahead, other), feed(*exactly, other));
  EXPECT_EQ(feed(*ahead, {6, 7, 8}), feed(*exactly, {6, 7, 8}));
  EXPECT_EQ(feed(*ahead, {9}), feed(*exactly, {9}));
}

// Decode, prefill of three rows, decode again: the graph holds no stage of a prefill, and replays
// equal kernels launched one by one.
TEST_P(GpuDecode, ReplaysEqualLaunchesOneByOneWithAPrefillBetween) {
  const auto captured = gpu(), plain = gpu({.graphs = false});
  for (const SamplingParams& params : ways()) {
    std::vector<std::vector<TokenId>> histories;
    std::vector<std::vector<float>> logits;
    int64_t graph_kernels = -1;
    for (CudaBackend* backend : {captured.get(), plain.get()}) {
      backend->reset();
      std::vector<TokenId> history = tokenizer_->encode("a b c d e", false);
      feed(*backend, history);
      history.push_back(7);
      decode(*backend, params, history, 6, 20);
      if (backend == captured.get()) {
        graph_kernels = backend->graph_kernels();
      }
      const int64_t n_graphs = backend->n_graphs();
      for (int idx = 0; idx < 3; ++idx) {
        history.push_back(20 + idx);
      }
      feed(*backend, {history.end() - 4, history.end() - 1});
      decode(*backend, params, history, 6, 20);
      EXPECT_EQ(backend->n_graphs(), n_graphs) << "captured again";
      logits.push_back(feed(*backend, {history.back()}));
      histories.push_back(history);
    }
    EXPECT_EQ(histories[0], histories[1]);
    EXPECT_EQ(logits[0], logits[1]);
    // The plain decode graph and the sampler: nothing else.
    const bool is_drawn = !params.is_greedy();
    const int64_t n_sampler = 1 + (is_drawn ? 1 : 0) + (is_drawn && params.top_k > 0 ? 3 : 0) +
                              (is_drawn && params.top_p < 1.0 ? 3 : 0);
    const auto fresh = gpu();
    feed(*fresh, {1});
    EXPECT_EQ(graph_kernels == 0 ? 0 : graph_kernels - n_sampler, fresh->graph_kernels());
  }
  EXPECT_EQ(plain->n_graphs(), 0);
}

INSTANTIATE_TEST_SUITE_P(Model, GpuDecode,
                         ::testing::Values("tiny-qwen3-kmix", "tiny-qwen2-legacy"),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr
