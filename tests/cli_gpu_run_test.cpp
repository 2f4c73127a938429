// `apr run` as a whole over the double of CUDA, which computes nothing: what it prints and the code
// it exits with.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cuda/kernel_table.h"
#include "support/cuda_double.h"
#include "support/fixtures.h"
#include "support/gguf_writer.h"

namespace apr::cli {
namespace {

constexpr const char* kModel = "tiny-qwen3-kmix";
constexpr const char* kPrompt = "What is 99 - 71?";

struct Ran {
  int code = 0;
  std::string out, err;
  bool said(const std::string& text) const { return err.find(text) != std::string::npos; }
};

// As main does.
Ran apr(const std::vector<std::string>& args) {
  Ran ran;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  OutputFormat format = OutputFormat::kText;
  try {
    ran.code = run_command_line(args, format);
  } catch (const Error& error) {
    ran.code = report_error(error, format);
  }
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

class RunOnTheDouble : public testing::Test {
 protected:
  void SetUp() override {
    // Neither kernels nor receipts of one test may be found by another.
    ::setenv("XDG_CACHE_HOME", "relative", 1);
    ::unsetenv("HOME");
    for (const char* name : {"SKIP_PARITY_GATE", "APR_F2_RECEIPT_DIR", "BATCHED_PREFILL",
                             "APR_QWEN35_PREFILL_GEMM", "APR_QWEN35_SESSION_PREFILL"}) {
      ::unsetenv(name);
    }
  }

  Ran run(std::vector<std::string> more, const std::string& prompt = kPrompt) const {
    more.insert(more.begin(), {"run", model_, "-p", prompt, "-n", "4"});
    return apr(more);
  }

  // Refused: nothing is generated, JSON says why.
  void expect_refusal(int code, const std::vector<std::string>& flags, const std::string& text) {
    const Ran ran = run(flags);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_TRUE(ran.said(text)) << ran.err;
    for (const char* format : {"--json", "--stream"}) {
      std::vector<std::string> with_format = flags;
      with_format.push_back(format);
      const Ran with_json = run(with_format);
      EXPECT_EQ(with_json.code, code);
      const auto json = nlohmann::json::parse(with_json.out);
      EXPECT_EQ(json["error"]["code"], code);
      EXPECT_EQ(json["backend"]["requested"], "gpu");
      EXPECT_EQ(json["backend"]["ran"], "none");
      EXPECT_EQ(json["backend"]["fell_back"], true);
      EXPECT_EQ(json["backend"]["reason"], json["error"]["message"]);
    }
  }

  // Not forced: the CPU answers, and one line says why.
  void expect_the_cpu(const std::string& line) {
    const Ran ran = run({});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(ran.said(line)) << ran.err;
    EXPECT_EQ(ran.out, run({"--no-gpu"}).out);
    const auto json = nlohmann::json::parse(run({"--json"}).out);
    EXPECT_EQ(json["backend"]["requested"], "default");
    EXPECT_EQ(json["backend"]["ran"], "cpu");
    EXPECT_EQ(json["backend"]["fell_back"], false);
    EXPECT_EQ(json["used_gpu"], false);
  }

  const std::string model_ = test::model_path(kModel)->string();
};

TEST_F(RunOnTheDouble, FailsTheLoadGateWith13) {
  test::CudaDouble cuda;
  expect_refusal(13, {"--gpu"}, "error: PARITY-GATE FAILED: cosine 0.000000");
  expect_refusal(13, {"--backend", "cuda", "--exact"}, "error: PARITY-GATE FAILED");
  const auto json = nlohmann::json::parse(run({"--gpu", "--json"}).out);
  EXPECT_EQ(json["parity"]["status"], "FAILED");
  EXPECT_EQ(json["parity"]["positions"], 1);
  EXPECT_EQ(json["parity"]["threshold"], 0.98);
  expect_the_cpu("selected: cpu (reason: parity FAILED cosine=0.0000 position=1 threshold=0.98)");
  EXPECT_TRUE(cuda.alive().empty());
}

TEST_F(RunOnTheDouble, GoesUnjudgedWhereTheGateIsSkipped) {
  test::CudaDouble cuda;
  ::setenv("SKIP_PARITY_GATE", "1", 1);
  const Ran ran = run({"--gpu", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(ran.said("warning: parity: skipped")) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["parity"]["status"], "skipped");
  EXPECT_EQ(json["parity"]["source"], "not-judged");
  EXPECT_EQ(json["used_gpu"], true);
}

// What has no effect is said only where it had none: a gate that ran used both backends.
TEST_F(RunOnTheDouble, NamesFlagsWithoutEffect) {
  test::CudaDouble cuda;
  const std::vector<std::string> flags = {"--revalidate", "--threads", "1", "--device", "0"};
  EXPECT_FALSE(run(flags).said("without effect")) << run(flags).err;
  std::vector<std::string> serial = flags;
  serial.insert(serial.end(), {"--gpu", "--prefill", "serial", "--prefill-chunk", "9"});
  ::setenv("SKIP_PARITY_GATE", "1", 1);
  const Ran ran = run(serial);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(
      ran.said("\nwarning: without effect: --threads (the GPU runs); --revalidate "
               "(SKIP_PARITY_GATE=1 compares nothing); --prefill-chunk (the prompt goes one "
               "token at a time)\n"))
      << ran.err;
}

// Every step of the card gives the logits of the load gate's token: right there, wrong on a prompt.
class OneAnswer {
 public:
  explicit OneAnswer(const std::string& path) {
    const Model model(test::open_gguf(path));
    const auto oracle = make_cpu_backend(model, {.context = 1});
    logits_.resize(static_cast<size_t>(model.desc().vocab_rows));
    const std::vector<TokenId> ids = {Tokenizer(model.file()).bos_id().value_or(1)};
    const std::vector<int64_t> row = {0};
    oracle->forward(ids, row, logits_, nullptr);
    table_ = test::fake_api();
    table_.cudaMemcpyAsync = [](void* to, const void*, size_t n_bytes, cudaMemcpyKind kind,
                                cudaStream_t) {
      if (kind == cudaMemcpyDeviceToHost && n_bytes == logits_.size() * sizeof(float)) {
        std::memcpy(to, logits_.data(), n_bytes);
      }
      return cudaSuccess;
    };
  }
  const cuda::Api* table() const { return &table_; }

 private:
  static inline std::vector<float> logits_;  // of a fake, which takes no context
  cuda::Api table_;
};

TEST_F(RunOnTheDouble, FailsTheGuardWith14) {
  const OneAnswer answer(model_);
  test::CudaDouble cuda(answer.table());
  for (const char* session : {"", "per-token"}) {
    if (*session != '\0') {
      ::setenv("APR_QWEN35_SESSION_PREFILL", session, 1);
    }
    expect_refusal(14, {"--gpu"}, "validated via batched prefill");
    expect_refusal(14, {"--gpu"}, "error: GPU output diverges from CPU at position ");
    expect_refusal(14, {"--gpu", "--prefill", "serial"}, "validated via serial prefill");
    expect_the_cpu("validated via batched prefill — falling back to CPU");
  }
  const auto json = nlohmann::json::parse(run({"--gpu", "--json"}).out);
  EXPECT_EQ(json["parity"]["status"], "FAILED");
  EXPECT_GE(json["parity"]["cosine"], 0.9999);
  EXPECT_LT(json["parity"]["min_cosine"], 0.98);
  EXPECT_TRUE(cuda.alive().empty());
}

TEST_F(RunOnTheDouble, OutOfMemoryIs14OrTheCpu) {
  {
    test::CudaDouble cuda;
    cuda.free_bytes = size_t{1} << 20;
    expect_refusal(14, {"--gpu"}, "of GPU memory");
    expect_the_cpu("runs on the CPU: ");
  }
  cuda::Api table = test::fake_api();
  table.cudaMalloc = [](void**, size_t) { return cudaErrorMemoryAllocation; };
  test::CudaDouble refusing(&table);  // though it said that there is enough
  expect_refusal(14, {"--gpu"}, "cudaErrorMemoryAllocation");
  expect_the_cpu("runs on the CPU: ");
}

// Memory of the cache is taken as the sequence grows.
TEST_F(RunOnTheDouble, OutOfMemoryInTheAnswerIs14OrTheCpu) {
  cuda::Api table = test::fake_api();
  table.cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                         unsigned long long) { return CUDA_ERROR_OUT_OF_MEMORY; };
  test::CudaDouble cuda(&table);
  expect_refusal(14, {"--gpu"}, "the GPU failed while 1 token was validated via serial prefill");
  expect_the_cpu("runs on the CPU: ");
  ::setenv("SKIP_PARITY_GATE", "1", 1);
  expect_refusal(14, {"--gpu"}, "cuMemCreate");
  expect_the_cpu("runs on the CPU: ");
  EXPECT_TRUE(cuda.alive().empty());
}

TEST_F(RunOnTheDouble, WithoutADeviceIs14OrTheCpu) {
  test::CudaDouble cuda;
  cuda.n_devices = 0;
  cuda.count_status = cudaErrorNoDevice;
  expect_refusal(14, {"--gpu"}, "--no-gpu runs on the CPU");
  expect_the_cpu("runs on the CPU: ");
}

TEST_F(RunOnTheDouble, WithoutADequantKernelIs14InEveryMode) {
  const Model model(test::open_gguf(model_));
  std::vector<cuda::KernelRow> rows;
  for (const cuda::KernelRow& row : cuda::kernel_table()) {
    if (row.name != "dequant.Q4_K.planes.f32") {
      rows.push_back(row);
    }
  }
  ASSERT_EQ(rows.size() + 1, cuda::kernel_table().size());
  const cuda::ScopedKernelTable scope(rows);
  test::CudaDouble cuda;
  for (const char* variable :
       {"APR_QWEN35_PREFILL_GEMM=f16", "APR_QWEN35_PREFILL_GEMM=f32",
        "APR_QWEN35_PREFILL_GEMM=dp4a", "APR_QWEN35_SESSION_PREFILL=per-token"}) {
    const std::string text = variable;
    const std::string name = text.substr(0, text.find('='));
    ::setenv(name.c_str(), text.substr(text.find('=') + 1).c_str(), 1);
    expect_refusal(14, {"--gpu"}, "no f32 dequant kernel for Q4_K");
    expect_the_cpu("no f32 dequant kernel for Q4_K");
    ::unsetenv(name.c_str());
  }
  EXPECT_EQ(cuda.count("cudaMalloc"), 0);
}

TEST_F(RunOnTheDouble, APromptOverTheContextIs4BeforeAnythingIsTaken) {
  test::CudaDouble cuda;
  const Ran ran = run({"--gpu", "--context", "4"}, "one two three four five six seven eight");
  EXPECT_EQ(ran.code, 4) << ran.err;
  EXPECT_TRUE(ran.said("tokens and the context holds 4")) << ran.err;
  EXPECT_EQ(cuda.count("cudaMalloc"), 0);
}

TEST_F(RunOnTheDouble, LogitsThatAreNoNumbersAre8) {
  test::GgufWriter writer = test::GgufWriter::copy_of(test::open_gguf(model_));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(writer.tensor("output_norm.weight").data.data(), &nan, sizeof nan);
  const test::TempFolder folder;
  const std::string path = folder / "nan.gguf";
  writer.write(path);
  test::CudaDouble cuda;
  for (const char* flag : {"--gpu", "--no-gpu", "--json"}) {
    const Ran ran = apr({"run", path, "-p", kPrompt, flag});
    EXPECT_EQ(ran.code, 8) << ran.err;
    EXPECT_TRUE(ran.said("non-finite")) << ran.err;
  }
}

TEST_F(RunOnTheDouble, BothBackendsAtOnceAre2AndTouchNothing) {
  test::CudaDouble cuda;
  EXPECT_EQ(run({"--gpu", "--no-gpu"}).code, 2);
  EXPECT_TRUE(cuda.trace().empty());
}

TEST_F(RunOnTheDouble, NoGpuTouchesNothingOfCuda) {
  test::CudaDouble cuda;
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--no-gpu"},
                                                {"--cpu", "--json"},
                                                {"--backend", "cpu"},
                                                {"--no-gpu", "--revalidate"}}) {
    EXPECT_EQ(run(flags).code, 0);
  }
  EXPECT_TRUE(cuda.trace().empty());
}

TEST_F(RunOnTheDouble, ParityThatFailsIs13) {
  test::CudaDouble cuda;
  const Ran ran = apr({"parity", model_, "-p", kPrompt});
  EXPECT_EQ(ran.code, 13) << ran.err;
}

TEST(BackendChoice, OfWhatIsNotCompiledInIs9) {
  BackendOptions options;
  options.gpu = true;
  try {
    choose_backend(options, [] {
      return cuda::Readiness{
          false, ErrorCode::kFeatureDisabled, "built without CUDA", "a line", {}};
    });
    ADD_FAILURE() << "no refusal";
  } catch (const RefusedBackend& refused) {
    EXPECT_EQ(refused.exit_code(), 9);
  }
}

}  // namespace
}  // namespace apr::cli
