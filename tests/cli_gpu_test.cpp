// What a verb does with a GPU that is ready but cannot run the model: table of CUDA calls faked.
#include <gtest/gtest.h>

#include "cli/devices.h"
#include "cli/load.h"
#include "support/cuda_double.h"
#include "support/expect_error.h"
#include "support/fixtures.h"

namespace apr::cli {
namespace {

BackendChoice chosen(bool forced) {
  BackendOptions options;
  options.gpu = forced;
  return choose_backend(options);
}

// No cache of kernels: what one test "compiles" must not be found by another.
void keep_no_kernels() {
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  ::unsetenv("HOME");
}

TEST(GpuChoice, OfAnOpWithoutAKernelIsTheCpuWithTheOpNamed) {
  test::CudaDouble cuda;
  const Model model(open_model_file("demo"));  // a hybrid
  BackendChoice choice = chosen(false);
  EXPECT_EQ(choice.ran, "gpu");
  const auto backend = make_backend(model, {}, choice, 16, 1);
  EXPECT_NE(backend->device_name().find("CPU"), std::string::npos);
  EXPECT_EQ(choice.requested, "default");
  EXPECT_EQ(choice.ran, "cpu");
  EXPECT_FALSE(choice.fell_back());
  EXPECT_NE(choice.reason.find("has no GPU kernel yet"), std::string::npos) << choice.reason;
  EXPECT_EQ(cuda.count("cudaMalloc"), 0);
  EXPECT_TRUE(cuda.alive().empty());
}

TEST(GpuChoice, WhenForcedFailsWithTheOpNamed) {
  test::CudaDouble cuda;
  const Model model(open_model_file("demo"));
  BackendChoice choice = chosen(true);
  const std::string message =
      test::expect_error(ErrorCode::kBackendUnavailable, "has no GPU kernel yet",
                         [&] { make_backend(model, {}, choice, 16, 1); });
  EXPECT_NE(message.find("--no-gpu"), std::string::npos);
  EXPECT_TRUE(cuda.alive().empty());
}

TEST(GpuChoice, OfACardThatRefusesFallsToTheCpuAndLeavesNothingBehind) {
  const Model model(test::open_gguf(*test::model_path("tiny-qwen3-kmix")));
  for (const bool forced : {false, true}) {
    test::CudaDouble cuda;
    cuda.compile_status = NVRTC_ERROR_COMPILATION;
    keep_no_kernels();
    BackendChoice choice = chosen(forced);
    if (forced) {
      test::expect_error(ErrorCode::kBackendUnavailable, "--no-gpu",
                         [&] { make_backend(model, {}, choice, 16, 1); });
    } else {
      EXPECT_NE(make_backend(model, {}, choice, 16, 1)->device_name().find("CPU"),
                std::string::npos);
      EXPECT_EQ(choice.ran, "cpu");
      EXPECT_NE(choice.reason, "");
    }
    EXPECT_TRUE(cuda.alive().empty());
  }
}

TEST(GpuChoice, WithoutMemoryIsRefusedWhenForcedElseTheCpu) {
  const Model model(test::open_gguf(*test::model_path("tiny-qwen3-kmix")));
  for (const bool forced : {false, true}) {
    test::CudaDouble cuda;
    cuda.free_bytes = size_t{1} << 20;
    BackendChoice choice = chosen(forced);
    if (forced) {
      try {
        make_backend(model, {}, choice, 16, 1);
        ADD_FAILURE() << "no refusal";
      } catch (const RefusedBackend& error) {
        EXPECT_EQ(error.exit_code(), 14);
        EXPECT_NE(std::string(error.what()).find("of GPU memory"), std::string::npos);
        const auto json = error.choice().to_json();
        EXPECT_EQ(json["requested"], "gpu");
        EXPECT_EQ(json["ran"], "none");
        EXPECT_EQ(json["fell_back"], true);
        EXPECT_EQ(json["reason"], error.what());
      }
    } else {
      const auto backend = make_backend(model, {}, choice, 16, 1);
      EXPECT_NE(backend->device_name().find("CPU"), std::string::npos);
      EXPECT_EQ(choice.ran, "cpu");
      EXPECT_NE(choice.reason.find("of GPU memory"), std::string::npos) << choice.reason;
      EXPECT_TRUE(prefill_json(*backend).is_null());
    }
    EXPECT_EQ(cuda.count("cudaMalloc"), 0);
    EXPECT_TRUE(cuda.alive().empty());
  }
}

TEST(GpuChoice, SaysWhichPrefillAndWhatDecided) {
  const Model model(test::open_gguf(*test::model_path("tiny-qwen3-kmix")));
  ::unsetenv("BATCHED_PREFILL");
  test::CudaDouble cuda;
  keep_no_kernels();
  BackendChoice choice = chosen(true);
  EngineOptions engine;
  const auto batched = prefill_json(*make_backend(model, engine, choice, 16, 1));
  EXPECT_EQ(batched["path"], "batched");
  EXPECT_EQ(batched["precision"], "f16");
  EXPECT_EQ(batched["chunk"], 16);
  EXPECT_LE(batched["need_bytes"], batched["free_bytes"]);
  engine.vram_bytes = uint64_t{5} << 30;  // too small for the seed's reserve
  const auto streamed = prefill_json(*make_backend(model, engine, choice, 16, 1));
  EXPECT_EQ(streamed["path"], "streamed");
  EXPECT_EQ(streamed["free_bytes"], uint64_t{5 * 1024 - 1276} << 20);
  EXPECT_EQ(streamed["need_bytes"], batched["need_bytes"]);
  engine.prefill = PrefillPath::kSerial;
  const auto serial = prefill_json(*make_backend(model, engine, choice, 16, 1));
  EXPECT_EQ(serial["path"], "serial");
  EXPECT_EQ(serial["reason"], "--prefill serial");
  EXPECT_EQ(serial["chunk"], 1);
}

TEST(GpuChoice, OfTheCpuTouchesNothingOfCuda) {
  test::CudaDouble cuda;
  BackendOptions options;
  options.no_gpu = true;
  options.device = 1;
  BackendChoice choice = choose_backend(options);
  const Model model(open_model_file("demo"));
  make_backend(model, {}, choice, 16, 1);
  EXPECT_TRUE(cuda.trace().empty());
}

TEST(Devices, AreListedByNumberAndName) {
  test::CudaDouble cuda;
  cuda.n_devices = 2;
  const auto json = devices_json(cuda::list_devices());
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[1]["ordinal"], 1);
  EXPECT_EQ(json[1]["name"], "Fake GPU");
  EXPECT_EQ(json[1]["architecture"], "sm_90a");
}

}  // namespace
}  // namespace apr::cli
