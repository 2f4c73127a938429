// Each call of CUDA that the backend makes, failing in turn: while it is made, in a prefill, in the
// capture of the decode graphs, in their replay and in decoding ahead. An error names call and
// reason; no handle is left.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/backend.h"
#include "support/cuda_double.h"
#include "support/model_variants.h"
#include "support/open_gguf.h"

namespace apr::cuda {
namespace {

struct Outcome {
  std::vector<std::string> trace;
  std::string failed_call;  // empty: there were fewer calls
  std::string message;      // of the error; empty: there was none
  bool fell_back = false;   // to 16-bit weights that are not kept
  int64_t n_prefill_graphs = 0;
};

// All matrices of one type: few kernels to compile, so that the runs are short.
std::vector<std::byte> model_image(const char* fixture) {
  test::GgufWriter model = test::GgufWriter::copy_of(test::open_gguf(test::model_fixture(fixture)));
  for (test::WriterTensor& tensor : model.tensors()) {
    if (tensor.shape.size() > 1) {
      test::retype_tensor(tensor, test::kTypeMxfp4);
    }
  }
  return model.bytes();
}

class BackendFailures : public testing::Test {
 protected:
  explicit BackendFailures(const char* fixture = "tiny-qwen3-iqmix")
      : image_(model_image(fixture)) {}

  void SetUp() override {
    // No cache of kernels: every construction compiles, that is, calls the fake NVRTC.
    ::setenv("XDG_CACHE_HOME", "relative", 1);
    ::unsetenv("HOME");
    set_log_level(LogLevel::kQuiet);
  }
  void TearDown() override { set_log_level(LogLevel::kNormal); }

  // Makes a backend and runs a prefill, two decode steps and a prefill again, the n-th call
  // failing; expects nothing to be left.
  Outcome run(const CudaBackendOptions& options, int n) const {
    test::CudaDouble cuda;
    const size_t held_before = device_bytes_held();
    cuda.fail_call(n);
    Outcome outcome;
    try {
      CudaBackend backend(model_, options);
      outcome.fell_back = backend.projection()->half_store() == HalfStore::kStreamed;
      std::vector<float> logits(static_cast<size_t>(backend.desc().vocab_rows));
      const std::vector<TokenId> ids = {1, 2, 3};
      const std::vector<int64_t> last = {2}, first = {0};
      backend.forward(ids, last, logits, nullptr);
      backend.forward(std::span(ids).first(1), first, logits, nullptr);
      backend.forward(std::span(ids).first(1), first, logits, nullptr);
      backend.undo_last();
      backend.forward(ids, last, logits, nullptr);
      EXPECT_EQ(backend.n_past(), 7);
      outcome.n_prefill_graphs = backend.n_prefill_graphs();
      DecodeOptions decode;
      decode.sampling.temperature = 1.0;
      decode.sampling.top_p = 0.5;
      decode.sampling.presence_penalty = 1.0;
      decode.history = ids;
      decode.max_tokens = 9;
      EXPECT_TRUE(backend.begin_decode(decode));
      backend.next_token();
      backend.next_token();
      backend.end_decode();
      EXPECT_EQ(backend.n_past(), 9);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBackendUnavailable) << error.what();
      outcome.message = error.what();
    }
    outcome.trace = cuda.trace();
    outcome.failed_call = cuda.failed_call();
    EXPECT_EQ(cuda.alive(), std::multiset<std::string>{}) << outcome.failed_call;
    EXPECT_EQ(cuda.violations(), std::vector<std::string>{}) << outcome.failed_call;
    EXPECT_EQ(device_bytes_held(), held_before) << outcome.failed_call;
    return outcome;
  }

  // Calls whose failure nobody needs to hear of by an exception.
  static bool is_tolerated(const std::string& call) {
    for (const char* word : {"Destroy", "Free", "Unload", "Release", "Unmap", "DriverGetVersion"}) {
      if (call.find(word) != call.npos) {
        return true;
      }
    }
    return false;
  }

  // Which calls of `trace` to fail: all but those of NVRTC, of which there are ten for each kernel,
  // all alike (and in the order in which threads make them); of these the first and the last few.
  static std::vector<int> chosen(const std::vector<std::string>& trace) {
    constexpr int kEnds = 24;
    std::vector<int> calls, of_nvrtc;
    for (int n = 0; n < static_cast<int>(trace.size()); ++n) {
      (trace[static_cast<size_t>(n)].starts_with("nvrtc") ? of_nvrtc : calls).push_back(n);
    }
    for (int idx = 0; idx < static_cast<int>(of_nvrtc.size()); ++idx) {
      if (idx < kEnds || idx >= static_cast<int>(of_nvrtc.size()) - kEnds) {
        calls.push_back(of_nvrtc[static_cast<size_t>(idx)]);
      }
    }
    calls.push_back(static_cast<int>(trace.size()));  // one too many: nothing fails
    return calls;
  }

  // `also`: calls that must have been among them.
  void fail_each_call(const CudaBackendOptions& options,
                      const std::vector<const char*>& also = {}) const {
    const Outcome good = run(options, -1);
    ASSERT_EQ(good.message, "");
    std::set<std::string> seen;
    for (const int n : chosen(good.trace)) {
      const Outcome outcome = run(options, n);
      ASSERT_EQ(outcome.failed_call.empty(), n == static_cast<int>(good.trace.size())) << n;
      seen.insert(outcome.failed_call);
      if (!outcome.message.empty()) {
        EXPECT_NE(outcome.message.find(outcome.failed_call), std::string::npos) << outcome.message;
        // The status as the double describes it.
        EXPECT_TRUE(outcome.message.find("made to fail") != std::string::npos ||
                    outcome.message.find("cudaErrorUnknown (999)") != std::string::npos)
            << outcome.message;
      } else {
        EXPECT_TRUE(outcome.failed_call.empty() || is_tolerated(outcome.failed_call) ||
                    (!good.fell_back && outcome.fell_back) ||
                    outcome.n_prefill_graphs < good.n_prefill_graphs)
            << outcome.failed_call << " failed and nothing came of it";
      }
      if (HasFailure()) {
        FAIL() << "at call " << n << ", " << outcome.failed_call;
      }
    }
    for (const char* call :
         {"cudaSetDevice",       "nvrtcCreateProgram",    "nvrtcCompileProgram",
          "nvrtcGetCUBIN",       "cuModuleLoadData",      "cublasCreate",
          "cudaMalloc",          "cudaHostAlloc",         "cudaMemcpy",
          "cuMemAddressReserve", "cuMemCreate",           "cuLaunchKernelEx",
          "cudaMemcpyAsync",     "cudaStreamEndCapture",  "cudaGraphInstantiate",
          "cudaGraphLaunch",     "cudaStreamSynchronize", "cudaEventCreateWithFlags",
          "cudaEventRecord",     "cudaEventSynchronize"}) {
      EXPECT_TRUE(seen.contains(call)) << call << " was never made to fail";
    }
    for (const char* call : also) {
      EXPECT_TRUE(seen.contains(call)) << call << " was never made to fail";
    }
  }

  const std::vector<std::byte> image_;
  const Model model_{test::open_gguf_image(image_)};
};

TEST_F(BackendFailures, WithSixteenBitWeightsKept) {
  fail_each_call({.context = 64, .prefill_gemm = PrefillGemm::kF16});
}

class ExpertBackendFailures : public BackendFailures {
 protected:
  ExpertBackendFailures() : BackendFailures("tiny-qwen3moe-mix") {}
};

TEST_F(ExpertBackendFailures, WithSixteenBitWeightsKept) {
  fail_each_call({.context = 64, .prefill_gemm = PrefillGemm::kF16});
}

class PlainBackendFailures : public BackendFailures {  // without QK-norm, which FP8 is not for
 protected:
  PlainBackendFailures() : BackendFailures("tiny-qwen2-legacy") {}
};

TEST_F(PlainBackendFailures, WithEightBitWeightsKept) {
  fail_each_call(
      {.context = 64, .prefill_gemm = PrefillGemm::kFp8},
      {"cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute",
       "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
       "cublasLtMatrixLayoutCreate", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"});
}

TEST_F(BackendFailures, InExactMode) {
  fail_each_call({.context = 64, .exact = true, .prefill_gemm = PrefillGemm::kF32});
}

}  // namespace
}  // namespace apr::cuda
