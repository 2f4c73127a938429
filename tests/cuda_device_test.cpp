// Whether a GPU can be used, and what is said where not.
#include "cuda/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "cuda/doctor.h"
#include "cuda/driver_failure.h"
#include "support/cuda_double.h"
#include "support/expect_error.h"

namespace apr::cuda {
namespace {

TEST(Readiness, OfAGoodMachine) {
  test::CudaDouble cuda;
  const Readiness readiness = check_readiness(0);
  EXPECT_TRUE(readiness.ready) << readiness.reason;
  ASSERT_TRUE(readiness.device);
  EXPECT_EQ(readiness.device->name, "Fake GPU");
  EXPECT_EQ(readiness.device->architecture, "sm_90a");
  EXPECT_EQ(use_device(0).n_sm, 132);
  EXPECT_EQ(cuda.count("cudaMalloc"), 0);
}

struct DeviceCase {
  const char* name;
  void (*arrange)(test::CudaDouble&);
  int ordinal;
  const char* reason;
  const char* remedy;
};

class ReadinessSays : public testing::TestWithParam<DeviceCase> {};

TEST_P(ReadinessSays, WhatIsWrongAndWhatMendsIt) {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  test::CudaDouble cuda;
  GetParam().arrange(cuda);
  const Readiness readiness = check_readiness(GetParam().ordinal);
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(readiness.code, ErrorCode::kBackendUnavailable);
  EXPECT_NE(readiness.reason.find(GetParam().reason), std::string::npos) << readiness.reason;
  EXPECT_NE(readiness.remedy.find(GetParam().remedy), std::string::npos) << readiness.remedy;
  const std::string message = test::expect_error(ErrorCode::kBackendUnavailable, GetParam().reason,
                                                 [] { use_device(GetParam().ordinal); });
  EXPECT_NE(message.find(GetParam().remedy), std::string::npos) << message;
  EXPECT_EQ(cuda.count("cudaSetDevice"), 0);
}

const DeviceCase kCases[] = {
    {"NoDriver",
     [](test::CudaDouble& cuda) {
       cuda.driver_version = 0;
       cuda.count_status = cudaErrorInsufficientDriver;
     },
     0, "libcuda.so.1", "install NVIDIA driver 5"},
    {"OldDriver",
     [](test::CudaDouble& cuda) {
       cuda.driver_version = 11040;
       cuda.count_status = cudaErrorInsufficientDriver;
     },
     0, "is for CUDA 11.4, this apr needs 1", "install NVIDIA driver 5"},
    {"MismatchedDriver",
     [](test::CudaDouble& cuda) { cuda.count_status = cudaErrorSystemDriverMismatch; }, 0,
     "cudaErrorSystemDriverMismatch (803)", "sudo reboot"},
    {"CompatLibrary",
     [](test::CudaDouble& cuda) { cuda.count_status = cudaErrorCompatNotSupportedOnDevice; }, 0,
     "cuda-compat library", "cuda-compat-*"},
    {"UnknownFailure", [](test::CudaDouble& cuda) { cuda.count_status = cudaErrorUnknown; }, 0,
     "fails to start; cudaGetDeviceCount: cudaErrorUnknown (999)", "modprobe nvidia_uvm"},
    {"UnlistedFailure",
     [](test::CudaDouble& cuda) { cuda.count_status = cudaErrorMemoryAllocation; }, 0,
     "does not answer", "nvidia-smi"},
    {"NoDevice", [](test::CudaDouble& cuda) { cuda.n_devices = 0; }, 0, "sees no GPU",
     "--gpus all"},
    {"HiddenDevices",
     [](test::CudaDouble& cuda) {
       ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
       cuda.count_status = cudaErrorNoDevice;
     },
     0, "CUDA_VISIBLE_DEVICES=\"\" hides every GPU", "unset CUDA_VISIBLE_DEVICES"},
    {"AbsentOrdinal", [](test::CudaDouble& cuda) { cuda.n_devices = 2; }, 2,
     "no device 2; this machine shows devices 0 to 1", "--list-devices"},
    {"NegativeOrdinal", [](test::CudaDouble&) {}, -1, "no device -1", "--list-devices"},
    {"OldCard",
     [](test::CudaDouble& cuda) {
       cuda.cc_major = 7;
       cuda.cc_minor = 0;
     },
     0, "compute capability 7.0; apr needs 7.5", "--no-gpu"},
    {"ClosedCard", [](test::CudaDouble& cuda) { cuda.compute_mode = cudaComputeModeProhibited; }, 0,
     "closed to computation", "sudo nvidia-smi -i 0 -c DEFAULT"},
    {"NoNvrtc", [](test::CudaDouble& cuda) { cuda.lose_library(Library::kNvrtc); }, 0,
     "NVRTC is missing: lost by the test", "pip install"},
    {"NoCublas", [](test::CudaDouble& cuda) { cuda.lose_library(Library::kCublas); }, 0,
     "cuBLAS is missing", "nvidia-cublas"},
    {"NoDriverFunctions", [](test::CudaDouble& cuda) { cuda.lose_library(Library::kDriver); }, 0,
     "NVIDIA driver is missing", "install NVIDIA driver"},
};

INSTANTIATE_TEST_SUITE_P(Machine, ReadinessSays, testing::ValuesIn(kCases),
                         [](const auto& test_case) { return test_case.param.name; });

TEST(Readiness, ListsEveryDeviceAlsoThoseTooOld) {
  test::CudaDouble cuda;
  cuda.n_devices = 3;
  cuda.cc_major = 6;
  const std::vector<DeviceFacts> devices = list_devices();
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[2].ordinal, 2);
  EXPECT_EQ(devices[2].total_bytes, uint64_t{1} << 37);
}

TEST(Diagnosis, TellsAMissingDriverFromAMissingCard) {
  const Diagnosis card = diagnose_driver(cudaErrorInsufficientDriver, {0, true, false, "", ""});
  EXPECT_NE(card.reason.find("card is here, but no NVIDIA driver"), std::string::npos);
  const Diagnosis bare = diagnose_driver(cudaErrorInsufficientDriver, {0, false, false, "", ""});
  EXPECT_NE(bare.reason.find("no NVIDIA card"), std::string::npos);
  EXPECT_NE(bare.remedy.find("--no-gpu"), std::string::npos);
  const Diagnosis old =
      diagnose_driver(cudaErrorInsufficientDriver, {12020, true, false, "", "535.183.01"});
  EXPECT_NE(old.reason.find("(kernel module 535.183.01) is for CUDA 12.2"), std::string::npos);
}

TEST(Doctor, ReportsALostLibraryAndItsRemedy) {
  ::setenv("XDG_CACHE_HOME", "/tmp", 1);
  test::CudaDouble cuda;
  EXPECT_TRUE(examine(0).readiness.ready);
  cuda.lose_library(Library::kCublas);
  const DoctorReport report = examine(0);
  EXPECT_TRUE(report.compiled);
  EXPECT_FALSE(report.readiness.ready);
  EXPECT_EQ(report.devices.size(), 1U);
  int n_bad = 0;
  for (const DoctorRow& row : report.rows) {
    n_bad += row.good ? 0 : 1;
    EXPECT_EQ(row.good, row.key != "cublas") << row.key;
    EXPECT_NE(row.value, "") << row.key;
    EXPECT_EQ(row.good, row.remedy.empty()) << row.key;
  }
  EXPECT_EQ(n_bad, 1);
}

// The real table of this machine, whatever it has: an answer within a second, before any load.
TEST(Readiness, OfThisMachineIsKnownWithinASecond) {
  const auto start = std::chrono::steady_clock::now();
  const Readiness readiness = check_readiness(0);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!readiness.ready) {
    EXPECT_LT(elapsed.count(), 1.0);
    EXPECT_NE(readiness.reason, "");
    EXPECT_NE(readiness.remedy, "");
  }
  RecordProperty("readiness", readiness.ready ? "ready" : readiness.reason);
}

}  // namespace
}  // namespace apr::cuda
