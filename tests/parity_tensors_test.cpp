// Every tensor bit for bit: a decoder that is wrong in one value is caught with its name; the GPU's
// decoder with each of its calls failing in turn.
#include "cli/parity_tensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <limits>

#include "cuda/dequant_check.h"
#include "support/expect_error.h"
#include "support/fixtures.h"
#include "support/gguf_writer.h"
#ifdef APR_WITH_CUDA
#include "cuda/handles.h"
#include "support/cuda_double.h"
#endif

namespace apr::cli {
namespace {

// The CPU's, wrong in one value of one tensor in the second of two layouts.
class WrongDecoder final : public TensorDecoder {
 public:
  WrongDecoder(TensorDecoder& inner, std::string tensor, int64_t row, int64_t col, uint32_t flip)
      : inner_(inner), tensor_(std::move(tensor)), row_(row), col_(col), flip_(flip) {}
  std::string device_name() const override { return "wrong"; }
  std::vector<std::string> layouts(const QuantType& type) const override {
    return type.block_elems > 1 ? std::vector<std::string>{"raw", "planes"}
                                : std::vector<std::string>{"raw"};
  }
  void load(std::span<const Weight> weights) override {
    loaded_ = weights;
    ++n_loads;
  }
  void decode(const Weight& weight, const std::string& layout, int64_t first_row, int64_t n_rows,
              float* out) override {
    EXPECT_TRUE(&weight >= loaded_.data() && &weight < loaded_.data() + loaded_.size());
    EXPECT_EQ(first_row % 16, 0);
    inner_.decode(weight, "raw", first_row, n_rows, out);
    const bool has_row = first_row <= row_ && row_ < first_row + n_rows;
    if (weight.name == tensor_ && has_row && layout == layouts(*weight.type).back()) {
      float& value = out[(row_ - first_row) * weight.n_cols + col_];
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ flip_);
    }
    n_values += n_rows * weight.n_cols;
  }
  int n_loads = 0;
  int64_t n_values = 0;

 private:
  TensorDecoder& inner_;
  std::string tensor_;
  int64_t row_, col_;
  uint32_t flip_;
  std::span<const Weight> loaded_;
};

class Tensors : public ::testing::Test {
 protected:
  GgufFile file_ = test::open_gguf(*test::model_path("tiny-qwen35moe-mix"));
  cpu::ThreadPool pool_{2};
  std::unique_ptr<TensorDecoder> cpu_ = make_cpu_tensor_decoder(pool_);
};

TEST_F(Tensors, OfTheFastDecodersAreTheReferences) {
  const TensorParityReport report = compare_tensors(file_, *cpu_, pool_, {});
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.n_tensors, static_cast<int64_t>(file_.tensors().size()));
  int64_t n_tensors = 0;
  std::set<std::string> types;
  for (const TensorTypeCount& count : report.types) {
    n_tensors += count.n_tensors;
    types.insert(count.type);
    EXPECT_EQ(count.n_failed, 0);
  }
  EXPECT_EQ(n_tensors, report.n_tensors);
  EXPECT_EQ(types.size(), tensor_types(file_).size());
  EXPECT_NE(parity_text(report).find("tensors PASS"), std::string::npos);
}

TEST_F(Tensors, OneWrongBitAnywhereIsNamed) {
  struct Case {
    const char* tensor;
    int64_t row, col;
    const char* layout;
  };
  for (const Case& c :
       {Case{"token_embd.weight", 4095, 255, "planes"},
        Case{"blk.1.ffn_down_exps.weight", 8 * 256 - 1, 0, "planes"},
        Case{"blk.0.ssm_a", 0, 3, "raw"}, Case{"blk.0.ssm_conv1d.weight", 1000, 1, "raw"}}) {
    for (const int64_t tile_values : {1, 5000, 1 << 22}) {
      WrongDecoder decoder(*cpu_, c.tensor, c.row, c.col, 1);
      TensorParityOptions options;
      options.tile_values = tile_values;
      options.load_bytes = 1 << 20;
      const TensorParityReport report = compare_tensors(file_, decoder, pool_, options);
      ASSERT_EQ(report.failed.size(), 1U) << c.tensor;
      const TensorMismatch& mismatch = report.failed[0];
      EXPECT_EQ(mismatch.tensor, c.tensor);
      EXPECT_EQ(mismatch.layout, c.layout);
      EXPECT_EQ(mismatch.row, c.row);
      EXPECT_EQ(mismatch.col, c.col);
      EXPECT_EQ(mismatch.n_different, 1);
      EXPECT_EQ(mismatch.found_bits, mismatch.expected_bits ^ 1);
      EXPECT_GT(decoder.n_loads, 2);
      EXPECT_GT(decoder.n_values, report.n_values);
      const auto json = parity_json(report);
      EXPECT_EQ(json["passed"], false);
      EXPECT_EQ(json["failed"][0]["tensor"], c.tensor);
      EXPECT_NE(parity_text(report).find("1 value differs"), std::string::npos);
    }
  }
}

// A value that is no number may have other bits, but not those of a value never written.
class NanDecoder final : public TensorDecoder {
 public:
  explicit NanDecoder(uint32_t bits) : bits_(bits) {}
  std::string device_name() const override { return "nan"; }
  std::vector<std::string> layouts(const QuantType&) const override { return {"raw"}; }
  void load(std::span<const Weight>) override {}
  void decode(const Weight& weight, const std::string&, int64_t, int64_t n_rows,
              float* out) override {
    std::fill(out, out + n_rows * weight.n_cols, 0.0F);
    out[0] = std::bit_cast<float>(bits_);
  }

 private:
  uint32_t bits_;
};

TEST(TensorsOfHostileFiles, AreComparedByTheirBits) {
  std::vector<float> values(32);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  test::GgufWriter writer;
  const auto bytes = std::as_bytes(std::span(values));
  writer.tensors().push_back({"t", {4, 8}, 0, {bytes.begin(), bytes.end()}});
  const std::vector<std::byte> image = writer.bytes();
  const GgufFile file = test::open_gguf_image(image);
  cpu::ThreadPool pool(1);
  for (const auto& [bits, passes] : {std::pair{0x7fc00000U, true},
                                     {0xffc00001U, true},
                                     {cuda::kUnwrittenBits, false},
                                     {0x7f800000U, false},
                                     {0U, false}}) {
    NanDecoder decoder(bits);
    EXPECT_EQ(compare_tensors(file, decoder, pool, {}).passed(), passes) << bits;
  }
}

TEST(TensorsOfHostileFiles, WithRowsTooLongAreRefusedByName) {
  const std::vector<std::byte> data(size_t{(1 << 24) + 256} / 256 * 66);
  test::GgufWriter writer;
  writer.tensors().push_back({"long", {(1 << 24) + 256}, find_quant_type("IQ2_XXS")->id, data});
  const std::vector<std::byte> image = writer.bytes();
  const GgufFile file = test::open_gguf_image(image);
  cpu::ThreadPool pool(1);
  const auto decoder = make_cpu_tensor_decoder(pool);
  test::expect_error(ErrorCode::kInvalidFormat, "long has 1 rows of 16777472 values",
                     [&] { compare_tensors(file, *decoder, pool, {}); });
}

TEST_F(Tensors, AreLeftWhenInterrupted) {
  const std::atomic<bool> cancel{true};
  TensorParityOptions options;
  options.cancel = &cancel;
  test::expect_error(ErrorCode::kInterrupted, "interrupted",
                     [&] { compare_tensors(file_, *cpu_, pool_, options); });
}

#ifdef APR_WITH_CUDA
// Compares on the fakes, whose memory computes nothing; the n-th call fails, -1: none.
struct FakeRun {
  std::vector<std::string> trace;
  std::string failed_call;
};

FakeRun run_on_fakes(const GgufFile& file, cpu::ThreadPool& pool, int n) {
  test::CudaDouble cuda;
  const size_t held_before = cuda::device_bytes_held();
  cuda.fail_call(n);
  try {
    const auto decoder = cuda::make_tensor_decoder(0, tensor_types(file));
    TensorParityOptions options;
    options.load_bytes = 1 << 20;
    EXPECT_FALSE(compare_tensors(file, *decoder, pool, options).passed());
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 14) << error.what();
  }
  EXPECT_EQ(cuda.alive(), std::multiset<std::string>()) << n << " " << cuda.failed_call();
  EXPECT_EQ(cuda.violations(), std::vector<std::string>());
  EXPECT_EQ(cuda::device_bytes_held(), held_before);
  return {cuda.trace(), cuda.failed_call()};
}

TEST_F(Tensors, OnAGpuEachCallThatFailsIsAnErrorAndLeavesNothing) {
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // no cache of kernels
  ::unsetenv("HOME");
  const FakeRun whole = run_on_fakes(file_, pool_, -1);
  std::map<std::string, std::set<int>> calls;  // the first and the last of each name
  for (size_t idx = 0; idx < whole.trace.size(); ++idx) {
    std::set<int>& of_name = calls[whole.trace[idx]];
    if (of_name.size() == 2) {
      of_name.erase(*of_name.rbegin());
    }
    of_name.insert(static_cast<int>(idx));
  }
  EXPECT_TRUE(calls.contains("cudaMalloc") && calls.contains("cudaMemsetAsync"));
  std::set<std::string> failed;
  for (const auto& [name, of_name] : calls) {
    for (const int idx : of_name) {
      failed.insert(run_on_fakes(file_, pool_, idx).failed_call);
    }
  }
  EXPECT_TRUE(failed.contains("cudaMalloc") && failed.contains("cudaMemsetAsync"));
  EXPECT_GE(failed.size() + 1, calls.size());
}
#endif

}  // namespace
}  // namespace apr::cli
