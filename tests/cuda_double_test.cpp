// Each call of CUDA failing in turn: no crash, no handle left behind, an error that names the call.
#include <gtest/gtest.h>

#include <functional>

#include "apr/cuda.h"
#include "apr/error.h"
#include "base/log.h"
#include "cuda/device.h"
#include "cuda/error.h"
#include "cuda/handles.h"
#include "cuda/launch_rms_norm.h"
#include "support/cuda_double.h"

namespace apr::cuda {
namespace {

constexpr size_t kMiB = 1024 * 1024;

// Calls whose failure nobody needs to hear of by an exception: the destroying ones log it, the
// driver's version only decorates a message.
bool is_tolerated(const std::string& call) {
  for (const char* word : {"Destroy", "Free", "Unload", "Release", "Unmap", "DriverGetVersion"}) {
    if (call.find(word) != call.npos) {
      return true;
    }
  }
  return false;
}

// Runs `scenario` with its first call failing, then with its second, ... until none is left to
// fail.
void fail_each_call(const std::function<void()>& scenario) {
  set_log_level(LogLevel::kQuiet);
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 1000);
    test::CudaDouble cuda;
    const size_t held_before = device_bytes_held();
    cuda.fail_call(n);
    std::string message;
    try {
      scenario();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBackendUnavailable);
      message = error.what();
    }
    const std::string failed = cuda.failed_call();
    SCOPED_TRACE(failed);
    EXPECT_EQ(cuda.alive(), std::multiset<std::string>{});
    EXPECT_EQ(cuda.violations(), std::vector<std::string>{});
    EXPECT_EQ(device_bytes_held(), held_before);
    if (failed.empty()) {
      EXPECT_EQ(message, "");
      EXPECT_GT(n, 0) << "the scenario calls nothing";
      break;
    }
    EXPECT_EQ(message.empty(), is_tolerated(failed));
    if (!message.empty()) {
      EXPECT_NE(message.find(failed), message.npos) << message;
    }
  }
  set_log_level(LogLevel::kNormal);
}

TEST(CudaFailures, WhenADeviceIsTaken) {
  fail_each_call([] { EXPECT_EQ(use_device(0).architecture, "sm_90a"); });
}

TEST(CudaFailures, WhenDevicesAreListed) {
  fail_each_call([] {
    EXPECT_EQ(list_devices().size(), 1U);
    device_memory();
  });
}

TEST(CudaFailures, WhenMemoryIsTaken) {
  fail_each_call([] {
    DeviceBuffer weights(64 * kMiB, "weights");
    DeviceBuffer activations(kMiB, "activations");
    EXPECT_EQ(device_bytes_held(), 65 * kMiB);
    weights = std::move(activations);
    EXPECT_EQ(device_bytes_held(), kMiB);
    const PinnedBuffer staging(kMiB, "staging");
    const DeviceBuffer none(0, "nothing");
    EXPECT_EQ(none.data(), nullptr);
  });
}

TEST(CudaFailures, WhenAVirtualRangeGrows) {
  fail_each_call([] {
    VirtualRange range(7 * kMiB, 0, "KV");
    EXPECT_EQ(range.reserved_bytes(), 8 * kMiB);
    range.grow(1);
    EXPECT_EQ(range.mapped_bytes(), 2 * kMiB);
    range.grow(5 * kMiB);
    EXPECT_EQ(range.mapped_bytes(), 6 * kMiB);
    range.grow(kMiB);
    EXPECT_EQ(range.mapped_bytes(), 6 * kMiB);
    VirtualRange other = std::move(range);
    range = VirtualRange(kMiB, 0, "KV");
    EXPECT_EQ(device_bytes_held(), 6 * kMiB);
  });
}

TEST(CudaFailures, WhenAGraphIsCapturedAndLaunched) {
  fail_each_call([] {
    const Stream stream = create_stream();
    const Event begin = create_timer();
    const Event done = create_event();
    const Graph graph =
        capture_graph(stream, [&] { APR_CUDA(api().cudaEventRecord(done.get(), stream.get())); });
    EXPECT_EQ(count_kernel_nodes(graph), 2);
    const GraphExec exec = instantiate(graph);
    APR_CUDA(api().cudaGraphLaunch(exec.get(), stream.get()));
    elapsed_ms(begin, done);
  });
}

TEST(CudaFailures, WhenKernelsAreCompiledLoadedAndLaunched) {
  fail_each_call([] {
    KernelCompiler compiler("");  // no cache: every time compiles
    const KernelRow rows[] = {{"rms_norm.vec4", "rms_norm.cu", "apr::rms_norm<4>", {}, {}, true}};
    const KernelLibrary kernels(compiler, rows, "sm_90a");
    const Stream stream = create_stream();
    launch_rms_norm(kernels, stream, {nullptr, nullptr, nullptr, 1024, 1e-6F}, 3);
  });
}

TEST(CudaFailures, WhenCublasIsPrepared) {
  fail_each_call([] {
    const Stream stream = create_stream();
    const CublasHandle cublas = create_cublas(stream);
    const CublasLtHandle lt = create_cublas_lt();
    const MatmulDesc desc = create_matmul_desc(CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const MatrixLayout layout = create_matrix_layout(CUDA_R_16F, 64, 64, 64);
    const MatmulPreference preference = create_matmul_preference(32 * kMiB);
  });
}

TEST(CudaErrors, SayCallStatusAndPlace) {
  test::CudaDouble cuda;
  cuda.fail_call(0);
  try {
    const DeviceBuffer buffer(1500000, "weights");
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(
        message.starts_with("1.5 MB of device memory for weights: cudaMalloc(&data, "
                            "size_bytes) failed: cudaErrorUnknown (999): unknown error "
                            "[src/cuda/handles.cpp:"))
        << message;
  }
}

TEST(CudaErrors, AMissingLibraryIsNamedWithItsRemedy) {
  test::CudaDouble cuda;
  cuda.lose_library(Library::kNvrtc);
  try {
    nvrtc_version();
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("NVRTC cannot be used: lost by the test"), message.npos) << message;
    EXPECT_NE(message.find("nvidia-cuda-nvrtc"), message.npos) << message;
  }
}

TEST(CudaReport, TheToolchainNamesWhatDecidesKernels) {
  test::CudaDouble cuda;
  EXPECT_EQ(cublas_version(), "13.0.0");
  EXPECT_NE(toolchain().find("cuBLAS 13.0.0"), std::string::npos) << toolchain();
  cuda.lose_library(Library::kCublas);
  EXPECT_NE(toolchain().find("cuBLAS none"), std::string::npos) << toolchain();
}

// Rows of a library that is not loaded answer "not initialised" instead of crashing.
TEST(Api, UnloadedRowsAnswerAFailure) {
  if (api().library(Library::kDriver).loaded) {
    GTEST_SKIP() << "SKIPPED: there is a driver here, so its rows are loaded";
  }
  CUmodule module = nullptr;
  EXPECT_EQ(api().cuModuleLoadData(&module, nullptr), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(describe(CUDA_ERROR_NOT_INITIALIZED), "unknown status (3): no description");
}

}  // namespace
}  // namespace apr::cuda
