// Decoding ahead over the test double: the order of calls, and what the backend says of itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "cuda/backend.h"
#include "support/cuda_double.h"
#include "support/open_gguf.h"

namespace apr::cuda {
namespace {

class DecodeAhead : public ::testing::Test {
 protected:
  DecodeAhead() : model_(test::open_gguf(test::model_fixture("tiny-qwen3-kmix"))) {
    ::setenv("XDG_CACHE_HOME", "relative", 1);  // no cache of kernels
    ::unsetenv("HOME");
    set_log_level(LogLevel::kQuiet);
    CudaBackendOptions options;
    options.context = 64;
    backend_ = std::make_unique<CudaBackend>(model_, options);
    logits_.resize(static_cast<size_t>(backend_->desc().vocab_rows));
    feed({1, 2, 3, 4});
  }
  ~DecodeAhead() override { set_log_level(LogLevel::kNormal); }

  void feed(const std::vector<TokenId>& ids) {
    const std::vector<int64_t> last{static_cast<int64_t>(ids.size()) - 1};
    backend_->forward(ids, last, logits_, nullptr);
  }

  bool begin(int64_t max_tokens, const SamplingParams& params = {},
             const std::vector<TokenId>& stop_ids = {}) {
    DecodeOptions options;
    options.sampling = params;
    options.history = history_;
    options.step = 1;
    options.max_tokens = max_tokens;
    options.stop_ids = stop_ids;
    return backend_->begin_decode(options);
  }

  // Calls of decoding since `from` in the trace, one letter each: Launch, Record, Wait, stream
  // Sync.
  std::string calls_since(size_t from) const {
    const std::vector<std::string> trace = cuda_.trace();
    std::string letters;
    for (size_t idx = from; idx < trace.size(); ++idx) {
      letters += trace[idx] == "cudaGraphLaunch"         ? "L"
                 : trace[idx] == "cudaEventRecord"       ? "R"
                 : trace[idx] == "cudaEventSynchronize"  ? "W"
                 : trace[idx] == "cudaStreamSynchronize" ? "S"
                                                         : "";
    }
    return letters;
  }
  size_t now() const { return cuda_.trace().size(); }

  test::CudaDouble cuda_;  // its tokens are all 0
  Model model_;
  std::unique_ptr<CudaBackend> backend_;
  std::vector<float> logits_;
  std::vector<TokenId> history_{1, 2, 3, 4, 5};
};

TEST_F(DecodeAhead, LaunchesAStepBeforeItWaitsForTheOneBefore) {
  const size_t start = now();
  ASSERT_TRUE(begin(4));
  EXPECT_EQ(calls_since(start), "LR");
  for (int token = 0; token < 4; ++token) {
    EXPECT_EQ(backend_->next_token().id, 0);
    EXPECT_EQ(backend_->n_past(), 5 + token);
  }
  EXPECT_EQ(calls_since(start), "LRLRWLRWLRWW");  // four launches for four tokens
  backend_->end_decode();
  EXPECT_EQ(calls_since(start), "LRLRWLRWLRWW");  // nothing was in flight
  EXPECT_EQ(backend_->n_past(), 8);
}

TEST_F(DecodeAhead, NothingIsLaunchedAfterAStopId) {
  const size_t start = now();
  ASSERT_TRUE(begin(10, {}, {7, 0}));
  backend_->next_token();
  EXPECT_EQ(calls_since(start), "LRLRW");
  backend_->end_decode();  // the one in flight, of which the device writes nothing, is waited for
  EXPECT_EQ(calls_since(start), "LRLRWS");
  EXPECT_EQ(backend_->n_past(), 5);
}

TEST_F(DecodeAhead, TheContextIsALimitOfItsOwn) {
  const size_t start = now();
  ASSERT_TRUE(begin(1000));
  for (int token = 0; token < 60; ++token) {
    backend_->next_token();
  }
  EXPECT_EQ(backend_->n_past(), 64);
  const std::string calls = calls_since(start);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), 'L'), 60);
}

TEST_F(DecodeAhead, AForwardAndAResetEndIt) {
  ASSERT_TRUE(begin(10));
  backend_->next_token();
  backend_->next_token();
  feed({9, 9, 9});
  EXPECT_EQ(backend_->n_past(), 9);
  ASSERT_TRUE(begin(10));
  backend_->next_token();
  backend_->reset();
  EXPECT_EQ(backend_->n_past(), 0);
}

TEST_F(DecodeAhead, TheLastTokenCanBeTakenBack) {
  ASSERT_TRUE(begin(10));
  backend_->next_token();
  backend_->next_token();
  backend_->undo_last();
  EXPECT_EQ(backend_->n_past(), 5);
}

TEST_F(DecodeAhead, OneGraphServesEveryAnswerOfAKind) {
  SamplingParams drawn;
  drawn.temperature = 0.7;
  for (int round = 0; round < 3; ++round) {
    drawn.seed = static_cast<uint64_t>(round);
    drawn.presence_penalty = round;  // read from device memory, as temperature and all else
    for (const SamplingParams& params : {SamplingParams{}, drawn}) {
      ASSERT_TRUE(begin(3, params));
      backend_->next_token();
      backend_->end_decode();
      feed({9, 9, 9});
    }
    EXPECT_EQ(backend_->n_graphs(), 2);
    EXPECT_EQ(backend_->n_prefill_graphs(), 1) << "of three tokens, met twice";
    EXPECT_EQ(cuda_.count("cudaGraphInstantiate"), 3);
  }
  feed({9});  // without a sampler
  EXPECT_EQ(backend_->n_graphs(), 3);
}

TEST_F(DecodeAhead, AnObservedBackendLeavesItToTheCaller) {
  class Observer : public StepObserver {
    void after_stage(const ExecPlan&, const Stage&, StepValues&) override {}
  } observer;
  backend_->observe(&observer);
  EXPECT_FALSE(begin(3));
  EXPECT_EQ(backend_->n_past(), 4);
  backend_->observe(nullptr);
  EXPECT_TRUE(begin(3));
}

// Cache pages of a step are there before it is launched: pages of 2 MiB hold thousands of
// positions here, so a backend of a large context is made to cross into the second.
TEST_F(DecodeAhead, PagesAreMappedBeforeTheirStepIsLaunched) {
  CudaBackendOptions options;
  options.context = 40000;
  options.exact = true;  // f32: half as many positions a page
  CudaBackend backend(model_, options);
  const int64_t position_bytes = model_.desc().attention.kv_dim() * 4;
  const int64_t page_positions = (int64_t{2} << 20) / position_bytes;
  ASSERT_LT(page_positions + 8, options.context);
  const std::vector<TokenId> chunk(static_cast<size_t>(backend.max_rows()), 1);
  while (backend.n_past() < page_positions - 2) {
    const auto n =
        static_cast<size_t>(std::min(backend.max_rows(), page_positions - 2 - backend.n_past()));
    backend.forward(std::span(chunk).first(n), {}, {}, nullptr);
  }
  DecodeOptions decode;
  decode.history = history_;
  decode.max_tokens = 8;
  const size_t start = now();
  const int n_pages = cuda_.count("cuMemCreate");
  ASSERT_TRUE(backend.begin_decode(decode));  // position page_positions - 2
  EXPECT_EQ(cuda_.count("cuMemCreate"), n_pages);
  backend.next_token();  // launches position page_positions - 1
  EXPECT_EQ(cuda_.count("cuMemCreate"), n_pages);
  backend.next_token();  // launches the first position of the new page
  EXPECT_GT(cuda_.count("cuMemCreate"), n_pages);
  const std::vector<std::string> trace = cuda_.trace();
  const auto mapped =
      std::find(trace.begin() + static_cast<ptrdiff_t>(start), trace.end(), "cuMemSetAccess");
  EXPECT_EQ(std::count(trace.begin() + static_cast<ptrdiff_t>(start), mapped, "cudaGraphLaunch"),
            2);
  EXPECT_EQ(std::count(mapped, trace.end(), "cudaGraphLaunch"), 1);
}

}  // namespace
}  // namespace apr::cuda
