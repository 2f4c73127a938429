// The gates on a real GPU, through `apr run`: fixtures pass them, by every path; kernels with a
// fault planted do not, each at the gate that can see it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cuda/kernel_table.h"
#include "support/fixtures.h"
#include "support/gguf_writer.h"
#include "support/gpu.h"

namespace apr::cli {
namespace {

constexpr const char* kShort = "What is 99 - 71?";

// More than 128 tokens: another kernel multiplies them.
std::string long_prompt() {
  std::string text;
  for (int line = 0; line < 12; ++line) {
    text += "The lighthouse keeper counted " + std::to_string(line * 7) + " ships before noon. ";
  }
  return text;
}

struct Ran {
  int code = 0;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
  bool said(const std::string& text) const { return err.find(text) != std::string::npos; }
};

// `apr run` as main runs it.
Ran run(const std::string& model, const std::string& prompt, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"run", model, "-p", prompt, "-n", "4"});
  Ran ran;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  OutputFormat format = OutputFormat::kText;
  try {
    ran.code = run_command_line(flags, format);
  } catch (const Error& error) {
    ran.code = report_error(error, format);
  }
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class GpuGateOf : public testing::TestWithParam<std::string> {};

TEST_P(GpuGateOf, PassesInEveryModeAndByEveryPath) {
  APR_NEED_GPU();
  const auto path = test::model_path(GetParam());
  if (!path) {
    GTEST_SKIP() << "SKIPPED: " << GetParam() << ".gguf is not here";
  }
  const test::TempFolder receipts;
  const Variable dir("APR_F2_RECEIPT_DIR", receipts.path());
  const struct {
    std::vector<std::string> flags;
    const char *variable, *value;
  } rows[] = {
      {{}, "APR_QWEN35_SESSION_PREFILL", "batched"},
      {{"--exact"}, "APR_QWEN35_SESSION_PREFILL", "batched"},
      {{"--prefill", "streamed"}, "APR_QWEN35_SESSION_PREFILL", "batched"},
      {{"--prefill", "serial"}, "APR_QWEN35_SESSION_PREFILL", "batched"},
      {{}, "APR_QWEN35_PREFILL_GEMM", "f32"},
      {{}, "APR_QWEN35_PREFILL_ATTENTION", "f32"},
      {{}, "APR_QWEN35_SESSION_PREFILL", "per-token"},
  };
  for (const auto& [flags, name, value] : rows) {
    const Variable mode(name, value);
    for (const std::string& prompt : {std::string(kShort), long_prompt()}) {
      std::vector<std::string> all = flags;
      all.insert(all.end(), {"--gpu", "--json"});
      const Ran first = run(path->string(), prompt, all);
      ASSERT_EQ(first.code, 0) << name << '=' << value << ": " << first.err;
      const auto parity = first.json()["parity"];
      EXPECT_EQ(parity["status"], "PASS");
      // A token at a time a long prompt runs what a short one did, which has a receipt by then.
      const bool covered = flags.size() == 2 && flags[1] == "serial" && prompt != kShort;
      EXPECT_EQ(parity["source"], covered ? "receipt" : "fresh") << first.err;
      EXPECT_GE(parity["cosine"], 0.98);
      EXPECT_GE(parity["min_cosine"], 0.95);
      std::printf("  %s %s=%s%s: cosine %.7f, min %.7f, %d positions\n", GetParam().c_str(), name,
                  value, flags.empty() ? "" : (" " + flags.back()).c_str(),
                  parity["cosine"].get<double>(), parity["min_cosine"].get<double>(),
                  parity["positions"].get<int>());
      const Ran second = run(path->string(), prompt, all);
      ASSERT_EQ(second.code, 0);
      EXPECT_EQ(second.json()["parity"]["source"], "receipt") << second.err;
      EXPECT_EQ(second.json()["tokens"], first.json()["tokens"]);
      EXPECT_TRUE(second.said("parity: receipt"));
    }
  }
  const Ran again = run(path->string(), kShort, {"--gpu", "--json", "--revalidate"});
  EXPECT_EQ(again.json()["parity"]["source"], "fresh");
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GpuGateOf,
                         testing::Values("tiny-qwen2-Q4_K_M", "tiny-qwen2-Q8_0", "tiny-qwen2-float",
                                         "tiny-qwen2-legacy", "tiny-qwen3-Q4_K_M",
                                         "tiny-qwen3-Q8_0", "tiny-qwen3-hot", "tiny-qwen3-iqmix",
                                         "tiny-qwen3-kmix", "tiny-qwen3moe-mix",
                                         "tiny-qwen3moe-Q4_K_M", "tiny-qwen3moe-Q8_0"),
                         [](const auto& param_info) { return test::param_name(param_info); });

// Of one type where that fixture is here: few kernels to compile.
class GpuGate : public testing::Test {
 protected:
  void SetUp() override {
    APR_NEED_GPU();
    path_ = test::model_path("tiny-qwen3-Q8_0").value_or(*test::model_path("tiny-qwen3-kmix"));
  }

  // A forced run ends with `code` and says `text`; one that is not forced is the CPU's.
  void expect_refusal(int code, const std::string& text, const std::string& prompt = kShort,
                      const std::vector<std::string>& flags = {}) {
    std::vector<std::string> with_gpu = flags;
    with_gpu.push_back("--gpu");
    const Ran forced = run(path_, prompt, with_gpu);
    EXPECT_EQ(forced.code, code) << forced.err;
    EXPECT_EQ(forced.out, "");
    EXPECT_TRUE(forced.said(text)) << forced.err;
    std::printf("  %s",
                forced.err.substr(std::min(forced.err.find("error: "), forced.err.size())).c_str());
    const Ran free = run(path_, prompt, flags);
    EXPECT_EQ(free.code, 0) << free.err;
    EXPECT_TRUE(
        free.said(code == 13 ? "selected: cpu (reason: parity FAILED" : "falling back to CPU"))
        << free.err;
    EXPECT_EQ(free.out, run(path_, prompt, {"--no-gpu"}).out);
  }
  void expect_pass(const std::string& prompt) {
    const Ran ran = run(path_, prompt, {"--gpu", "--json", "--revalidate"});
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.json()["parity"]["source"], "fresh");
  }

  test::TempFolder folder_;
  std::string path_;
  const Variable receipts_{"APR_F2_RECEIPT_DIR", folder_ / "receipts"};
};

// The table with a decoder's fault in the kernels whose name begins and ends so.
class FaultyRows {
 public:
  FaultyRows(std::string_view begin, std::string_view end) {
    for (cuda::KernelRow row : cuda::kernel_table()) {
      if (row.name.starts_with(begin) && row.name.ends_with(end)) {
        row.options.push_back("--define-macro=APR_FAULTS=kSign");
        ++n_faulty_;
      }
      rows_.push_back(row);
    }
    scope_.emplace(rows_);
  }
  int n_faulty() const { return n_faulty_; }

 private:
  std::vector<cuda::KernelRow> rows_;
  int n_faulty_ = 0;
  std::optional<cuda::ScopedKernelTable> scope_;
};

TEST_F(GpuGate, WithoutAFaultPasses) {
  expect_pass(kShort);
  expect_pass(long_prompt());
}

TEST_F(GpuGate, SeesAFaultOfDecodeProductsWhenLoading) {
  const FaultyRows faulty("matvec_", "");
  ASSERT_GT(faulty.n_faulty(), 0);
  expect_refusal(13, "error: PARITY-GATE FAILED");
}

// Streamed, for the weights of a small model that are kept are cuBLAS's.
TEST_F(GpuGate, SeesAFaultOfAShortPromptsProducts) {
  const FaultyRows faulty("matvec_rows.", "");
  ASSERT_GT(faulty.n_faulty(), 0);
  expect_refusal(14, "validated via batched prefill", kShort, {"--prefill", "streamed"});
  const Variable session("APR_QWEN35_SESSION_PREFILL", "per-token");  // does not avoid the guard
  expect_refusal(14, "validated via batched prefill", kShort, {"--prefill", "streamed"});
}

// A prompt of 64 tokens and more also stands for shorter ones, whose kernels others are.
TEST_F(GpuGate, SeesAFaultOfFewTokensBehindALongPrompt) {
  for (const char* kernel : {".8", ".16"}) {
    const FaultyRows faulty("matvec_rows.", kernel);
    ASSERT_GT(faulty.n_faulty(), 0);
    expect_refusal(14, "validated via batched prefill", long_prompt(), {"--prefill", "streamed"});
  }
}

TEST_F(GpuGate, SeesAFaultOfALongPromptsWeights) {
  const FaultyRows faulty("dequant.", ".f16");
  ASSERT_GT(faulty.n_faulty(), 0);
  expect_refusal(14, "validated via batched prefill", long_prompt());
}

// The system's table, compiling other texts: one piece of those kernels that the predicate names.
class FaultyText {
 public:
  FaultyText(const std::string& file_part, const std::string& from, const std::string& to) {
    file_part_ = file_part, from_ = from, to_ = to;
    n_planted_ = 0;
    // Rows of a library that is not loaded yet would be copied as such.
    for (const cuda::Library library : {cuda::Library::kDriver, cuda::Library::kCublasLt,
                                        cuda::Library::kCublas, cuda::Library::kNvrtc}) {
      cuda::require_library(library);
    }
    inner_ = cuda::api().nvrtcCreateProgram;
    cuda::Api table = cuda::api();
    table.nvrtcCreateProgram = &create_program;
    scope_.emplace(table_ = table);
  }
  int n_planted() const { return n_planted_; }

 private:
  static std::string planted(const std::string& name, std::string text) {
    if (name.find(file_part_) == name.npos) {
      return text;
    }
    for (size_t at = 0; (at = text.find(from_, at)) != text.npos; at += to_.size()) {
      text.replace(at, from_.size(), to_);
      ++n_planted_;
    }
    return text;
  }

  static nvrtcResult create_program(nvrtcProgram* program, const char* source, const char* name,
                                    int n_headers, const char* const* headers,
                                    const char* const* include_names) {
    std::deque<std::string> texts;
    std::vector<const char*> pointers;
    for (int header = 0; header < n_headers; ++header) {
      pointers.push_back(
          texts.emplace_back(planted(include_names[header], headers[header])).c_str());
    }
    const std::string text = planted(name, source);
    return inner_(program, text.c_str(), name, n_headers, pointers.data(), include_names);
  }

  // Of a call that takes no context.
  static inline std::string file_part_, from_, to_;
  static inline std::atomic<int> n_planted_ = 0;
  static inline decltype(&::nvrtcCreateProgram) inner_ = nullptr;
  cuda::Api table_;
  std::optional<cuda::ScopedApi> scope_;
};

// Neither is seen at position 0: no angle there, and one key alone.
TEST_F(GpuGate, SeesInThePromptWhatTheFirstTokenHides) {
  const struct {
    const char *file_part, *from, *to;
  } rows[] = {
      {"sincos.cuh", "(float angle, float& sine, float& cosine) {",
       "(float angle, float& sine, float& cosine) { angle *= 3.0f;"},
      {"attention_", "p.scale", "(8.0f * p.scale)"},
  };
  for (const auto& [file_part, from, to] : rows) {
    const test::TempFolder cache;  // the faulty kernels' own
    const Variable dir("XDG_CACHE_HOME", cache.path());
    const FaultyText faulty(file_part, from, to);
    expect_refusal(14, "validated via batched prefill");
    EXPECT_GT(faulty.n_planted(), 0) << from << " is no longer in kernels/" << file_part;
  }
}

// Another kernel takes the probe's 64 tokens at once: the step after them shows it first.
TEST_F(GpuGate, SeesAFaultOfDecodeInTheStepAfterThePrompt) {
  const test::TempFolder cache;
  const Variable dir("XDG_CACHE_HOME", cache.path());
  const FaultyText faulty("attention_split.cu", "p.scale", "(8.0f * p.scale)");
  expect_refusal(14, "diverges from CPU at position 64 ", long_prompt());
  EXPECT_GT(faulty.n_planted(), 0);
}

}  // namespace
}  // namespace apr::cli
