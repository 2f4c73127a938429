// Owners, kernels, graphs and libraries on a real GPU.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/doctor.h"
#include "cuda/launch_rms_norm.h"
#include "support/cuda_double.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"
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

TEST(GpuDevice, AnIndexOfNoDeviceNamesTheRange) {
  APR_NEED_GPU();
  const int n_devices = static_cast<int>(list_devices().size());
  const std::string range = n_devices == 1 ? std::string("device 0 only")
                                           : "devices 0 to " + std::to_string(n_devices - 1);
  for (const int ordinal : {-1, n_devices, 99}) {
    const std::string message = test::expect_error(
        ErrorCode::kBackendUnavailable,
        "there is no device " + std::to_string(ordinal) + "; this machine shows " + range,
        [&] { use_device(ordinal); });
    EXPECT_NE(message.find("--list-devices"), message.npos) << message;
  }
  EXPECT_EQ(use_device(0).ordinal, 0);
}

TEST(GpuDevice, EachOneListedCanBeTaken) {
  APR_NEED_GPU();
  for (const DeviceFacts& listed : list_devices()) {
    const Readiness readiness = check_readiness(listed.ordinal);
    ASSERT_TRUE(readiness.ready) << readiness.reason;
    EXPECT_EQ(use_device(listed.ordinal).architecture, listed.architecture);
    const DeviceBuffer buffer(kMiB, "a test");
    APR_CUDA(api().cudaMemset(buffer.data(), 1, buffer.size_bytes()));
    APR_CUDA(api().cudaDeviceSynchronize());
  }
  use_device(0);
}

TEST(GpuDoctor, FindsNothingToMend) {
  APR_NEED_GPU();
  const test::TempFolder temp;
  ::setenv("XDG_CACHE_HOME", temp.path().c_str(), 1);
  const DoctorReport report = examine(0);
  EXPECT_TRUE(report.readiness.ready) << report.readiness.reason;
  EXPECT_EQ(report.devices.size(), list_devices().size());
  for (const DoctorRow& row : report.rows) {
    EXPECT_TRUE(row.good) << row.key << ": " << row.value;
    EXPECT_EQ(row.remedy, "") << row.key;
  }
}

TEST(GpuKernels, ASecondStartCompilesNothing) {
  APR_NEED_GPU();
  const test::TempFolder temp;
  const std::array rows{kernel_row("rms_norm.vec4"), kernel_row("rms_norm.scalar")};
  KernelCompiler first(temp.path());
  const KernelLibrary compiled(first, rows, use_device(0).architecture);
  EXPECT_EQ(first.n_compiled(), 2);
  KernelCompiler second(temp.path());
  const KernelLibrary cached(second, rows, use_device(0).architecture);
  EXPECT_EQ(second.n_compiled(), 0);
  EXPECT_EQ(second.n_cached(), 2);
  EXPECT_NE(cached.find("rms_norm.vec4"), nullptr);
}

TEST(GpuMemory, AddressesTakeNoMemory) {
  APR_NEED_GPU();
  const uint64_t free_before = device_memory().free_bytes;
  const VirtualRange range(size_t{64} << 30, 0, "a test");
  EXPECT_EQ(range.mapped_bytes(), 0U);
  EXPECT_LT(free_before - std::min(free_before, device_memory().free_bytes), 64 * kMiB);
}

// As KV pages are used: a graph captured when the range was small is replayed when it has grown.
TEST(GpuMemory, AGraphStaysGoodWhileItsRangeGrows) {
  APR_NEED_GPU();
  VirtualRange range(size_t{1} << 30, 0, "KV");
  range.grow(1);
  const std::byte* const base = range.data();
  const size_t page_bytes = range.page_bytes();
  const Stream stream = create_stream();
  const DeviceBuffer seen(sizeof(int), "a test");
  const GraphExec exec = instantiate(capture_graph(stream, [&] {
    APR_CUDA(api().cudaMemcpyAsync(seen.data(), range.data() + 4096, sizeof(int),
                                   cudaMemcpyDeviceToDevice, stream.get()));
  }));
  for (int n_pages = 2; n_pages < 40; ++n_pages) {
    const int written = 1000 + n_pages;
    APR_CUDA(
        api().cudaMemcpy(range.data() + 4096, &written, sizeof written, cudaMemcpyHostToDevice));
    range.grow(static_cast<size_t>(n_pages) * page_bytes);
    ASSERT_EQ(range.data(), base);
    ASSERT_EQ(range.mapped_bytes(), static_cast<size_t>(n_pages) * page_bytes);
    APR_CUDA(
        api().cudaMemset(range.data() + range.mapped_bytes() - page_bytes, n_pages, page_bytes));
    APR_CUDA(api().cudaDeviceSynchronize());  // the stream does not wait for the default one
    APR_CUDA(api().cudaGraphLaunch(exec.get(), stream.get()));
    APR_CUDA(api().cudaStreamSynchronize(stream.get()));
    ASSERT_EQ(test::to_host<int>(seen).front(), written);
  }
  for (int page = 1; page < 39; ++page) {  // what was written stays
    unsigned char byte = 0;
    APR_CUDA(api().cudaMemcpy(&byte,
                              range.data() + (static_cast<size_t>(page) + 1) * page_bytes - 1, 1,
                              cudaMemcpyDeviceToHost));
    ASSERT_EQ(byte, page + 1);
  }
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
