// Owners, kernels, graphs and libraries on a real GPU.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/launch_rms_norm.h"
#include "support/cuda_double.h"
#include "support/gpu.h"

namespace apr::cuda {
namespace {

constexpr size_t kMiB = 1024 * 1024;

KernelLibrary rms_norm_kernels() {
  KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  const std::array rows{kernel_row("rms_norm.vec4"), kernel_row("rms_norm.scalar")};
  return {compiler, rows, use_device(0).architecture};
}

TEST(GpuDevice, SaysWhatItIs) {
  APR_NEED_GPU();
  const DeviceFacts facts = use_device(0);
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GT(facts.n_sm, 0);
  EXPECT_GT(facts.shared_bytes_per_block, 48U * 1024);
  const DeviceMemory memory = device_memory();
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
  EXPECT_EQ(list_devices().front().name, facts.name);
}

TEST(GpuMemory, AVirtualRangeKeepsAddressAndContentAsItGrows) {
  APR_NEED_GPU();
  VirtualRange range(size_t{1} << 30, 0, "a test");
  const std::byte* const base = range.data();
  range.grow(1);
  const size_t page_bytes = range.mapped_bytes();
  EXPECT_EQ(page_bytes, range.page_bytes());
  APR_CUDA(api().cudaMemset(range.data(), 0x5a, page_bytes));
  range.grow(page_bytes + 1);
  EXPECT_EQ(range.mapped_bytes(), 2 * page_bytes);
  APR_CUDA(api().cudaMemset(range.data() + page_bytes, 0xa5, page_bytes));
  EXPECT_EQ(range.data(), base);
  std::vector<unsigned char> bytes(2 * page_bytes);
  APR_CUDA(api().cudaMemcpy(bytes.data(), range.data(), bytes.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(bytes[page_bytes - 1], 0x5a);
  EXPECT_EQ(bytes[page_bytes], 0xa5);
}

TEST(GpuMemory, TooMuchIsAnErrorThatSaysHowMuchAndWhatFor) {
  APR_NEED_GPU();
  try {
    const DeviceBuffer buffer(size_t{1} << 50, "weights");
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("of device memory for weights: cudaMalloc"), message.npos) << message;
    EXPECT_NE(message.find("cudaErrorMemoryAllocation (2)"), message.npos) << message;
  }
  const DeviceBuffer after(kMiB, "weights");  // the failure poisons nothing
  EXPECT_NE(after.data(), nullptr);
}

TEST(GpuGraph, ReplaysAChainOfOverlappingKernels) {
  APR_NEED_GPU();
  const KernelLibrary kernels = rms_norm_kernels();
  const std::vector<float> x{3, 0, 0, 4, 0, 0, 0, 0}, weight(8, 2.0F);
  const DeviceBuffer x_device = test::to_device<float>(x);
  const DeviceBuffer weight_device = test::to_device<float>(weight);
  const DeviceBuffer y_device(x_device.size_bytes(), "a test");
  const Stream stream = create_stream();
  constexpr int kLaunches = 64;
  const Graph graph = capture_graph(stream, [&] {
    for (int n = 0; n < kLaunches; ++n) {
      launch_rms_norm(kernels, stream,
                      {(n == 0 ? x_device : y_device).as<float>(), weight_device.as<float>(),
                       y_device.as<float>(), 8, 0.0F},
                      1);
    }
  });
  EXPECT_EQ(count_kernel_nodes(graph), kLaunches);
  const GraphExec exec = instantiate(graph);
  for (int replay = 0; replay < 3; ++replay) {
    APR_CUDA(api().cudaGraphLaunch(exec.get(), stream.get()));
  }
  APR_CUDA(api().cudaStreamSynchronize(stream.get()));
  // Each norm leaves mean square 4 (weight 2): 3 and 4 become 2 * 3 / sqrt(25 / 8) and so on.
  const std::vector<float> y = test::to_host<float>(y_device);
  EXPECT_NEAR(y[0], 6 / std::sqrt(25.0 / 8), 1e-4);
  EXPECT_NEAR(y[3], 8 / std::sqrt(25.0 / 8), 1e-4);
  EXPECT_EQ(y[1], 0.0F);
}

TEST(GpuCublas, MultipliesThroughTheTable) {
  APR_NEED_GPU();
  const Stream stream = create_stream();
  const CublasHandle cublas = create_cublas(stream);
  const CublasLtHandle lt = create_cublas_lt();
  const std::vector<float> a{1, 2, 3, 4}, b{1, 0, 0, 1};
  const DeviceBuffer a_device = test::to_device<float>(a), b_device = test::to_device<float>(b);
  const DeviceBuffer c_device(a_device.size_bytes(), "a test");
  const float one = 1.0F, zero = 0.0F;
  APR_CUDA(api().cublasSetMathMode(cublas.get(), CUBLAS_PEDANTIC_MATH));
  APR_CUDA(api().cublasSgemm_64(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one,
                                a_device.as<float>(), 2, b_device.as<float>(), 2, &zero,
                                c_device.as<float>(), 2));
  APR_CUDA(api().cudaStreamSynchronize(stream.get()));
  EXPECT_EQ(test::to_host<float>(c_device), a);
}

// The owners over the real table, each call made to fail in turn: afterwards everything works.
TEST(GpuFailures, EachCallInTurnLeavesTheDeviceUsable) {
  APR_NEED_GPU();
  const Api& system = api();
  set_log_level(LogLevel::kQuiet);
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 500);
    test::CudaDouble cuda(&system);
    cuda.fail_call(n);
    bool threw = false;
    try {
      use_device(0);
      const KernelLibrary kernels = rms_norm_kernels();
      const Stream stream = create_stream();
      const DeviceBuffer x(4096, "x"), weight(4096, "weight"), y(4096, "y");
      const PinnedBuffer staging(4096, "staging");
      VirtualRange range(8 * kMiB, 0, "range");
      range.grow(3 * kMiB);
      launch_rms_norm(kernels, stream,
                      {x.as<float>(), weight.as<float>(), y.as<float>(), 1024, 1e-6F}, 1);
      APR_CUDA(api().cudaStreamSynchronize(stream.get()));
      const CublasHandle cublas = create_cublas(stream);
    } catch (const Error& error) {
      threw = true;
      EXPECT_NE(std::string(error.what()).find(cuda.failed_call()), std::string::npos)
          << error.what();
    }
    if (cuda.failed_call().empty()) {
      EXPECT_FALSE(threw);
      EXPECT_GT(n, 20);
      break;
    }
  }
  set_log_level(LogLevel::kNormal);
  EXPECT_EQ(device_bytes_held(), 0U);
}

}  // namespace
}  // namespace apr::cuda
