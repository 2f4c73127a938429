#include "cuda/device.h"

#include <fmt/format.h>

#include "cuda/driver_failure.h"
#include "cuda/error.h"
#include "cuda/kernel_table.h"

namespace apr::cuda {
namespace {

// tensor cores for f16, and the oldest that CUDA 13 compiles for
constexpr int kOldestMajor = 7;
constexpr int kOldestMinor = 5;

Readiness unready(const std::string& reason, const std::string& remedy) {
  Readiness readiness;
  readiness.reason = reason;
  readiness.remedy = remedy;
  return readiness;
}

// The number of devices, or why the driver gives none.
Readiness count_devices(int& n_devices) {
  int version = 0;
  static_cast<void>(api().cudaDriverGetVersion(&version));  // leaves 0 where there is no driver
  n_devices = 0;
  cudaError_t status = api().cudaGetDeviceCount(&n_devices);
  if (status == cudaSuccess && n_devices == 0) {
    status = cudaErrorNoDevice;
  }
  if (status != cudaSuccess) {
    const Diagnosis diagnosis =
        diagnose_driver(status, DriverSurroundings::of_this_machine(version));
    return unready(fmt::format("{}; cudaGetDeviceCount: {}", diagnosis.reason, describe(status)),
                   diagnosis.remedy);
  }
  Readiness ready;
  ready.ready = true;
  return ready;
}

DeviceFacts read_facts(int ordinal) {
  cudaDeviceProp properties{};
  APR_CUDA(api().cudaGetDeviceProperties(&properties, ordinal));
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.name = properties.name;
  facts.cc_major = properties.major;
  facts.cc_minor = properties.minor;
  facts.architecture = device_architecture(properties.major, properties.minor);
  facts.n_sm = properties.multiProcessorCount;
  facts.total_bytes = properties.totalGlobalMem;
  facts.l2_bytes = static_cast<uint64_t>(properties.l2CacheSize);
  facts.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
  return facts;
}

bool too_old(const DeviceFacts& facts) {
  return facts.cc_major < kOldestMajor ||
         (facts.cc_major == kOldestMajor && facts.cc_minor < kOldestMinor);
}

Readiness check_device(int ordinal, int n_devices) {
  if (ordinal < 0 || ordinal >= n_devices) {
    return unready(fmt::format("there is no device {}; this machine shows {}", ordinal,
                               n_devices == 1 ? "device 0 only"
                                              : fmt::format("devices 0 to {}", n_devices - 1)),
                   "--list-devices shows them");
  }
  Readiness readiness;
  readiness.device = read_facts(ordinal);
  if (too_old(*readiness.device)) {
    readiness.reason =
        fmt::format("device {} ({}) has compute capability {}.{}; apr needs {}.{} or newer",
                    ordinal, readiness.device->name, readiness.device->cc_major,
                    readiness.device->cc_minor, kOldestMajor, kOldestMinor);
    readiness.remedy = n_devices > 1 ? "choose another card: --list-devices, --device N"
                                     : "run on the CPU with --no-gpu";
    return readiness;
  }
  int compute_mode = 0;
  APR_CUDA(api().cudaDeviceGetAttribute(&compute_mode, cudaDevAttrComputeMode, ordinal));
  if (compute_mode == cudaComputeModeProhibited) {
    readiness.reason = fmt::format("device {} is closed to computation", ordinal);
    readiness.remedy = fmt::format("sudo nvidia-smi -i {} -c DEFAULT", ordinal);
    return readiness;
  }
  for (const Library library :
       {Library::kDriver, Library::kNvrtc, Library::kCublasLt, Library::kCublas}) {
    const LibraryFacts& facts = api().library(library);
    if (!facts.loaded) {
      readiness.reason = fmt::format("{} is missing: {}", library_name(library), facts.reason);
      readiness.remedy = library == Library::kDriver
                             ? fmt::format("install NVIDIA driver {} or newer", oldest_driver())
                             : library_remedy();
      return readiness;
    }
  }
  readiness.ready = true;
  return readiness;
}

[[noreturn]] void throw_unready(const Readiness& readiness) {
  throw Error(readiness.code, fmt::format("{}; {}", readiness.reason, readiness.remedy));
}

}  // namespace

Readiness check_readiness(int ordinal) {
  try {
    int n_devices = 0;
    const Readiness driver = count_devices(n_devices);
    return driver.ready ? check_device(ordinal, n_devices) : driver;
  } catch (const Error& error) {
    return unready(error.what(), "nvidia-smi shows whether the card works; else sudo reboot");
  }
}

DeviceFacts use_device(int ordinal) {
  const Readiness readiness = check_readiness(ordinal);
  if (!readiness.ready) {
    throw_unready(readiness);
  }
  APR_CUDA(api().cudaSetDevice(ordinal));
  return *readiness.device;
}

std::vector<DeviceFacts> list_devices() {
  int n_devices = 0;
  const Readiness driver = count_devices(n_devices);
  if (!driver.ready) {
    throw_unready(driver);
  }
  std::vector<DeviceFacts> devices;
  for (int ordinal = 0; ordinal < n_devices; ++ordinal) {
    devices.push_back(read_facts(ordinal));
  }
  return devices;
}

DeviceMemory device_memory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  APR_CUDA(api().cudaMemGetInfo(&free_bytes, &total_bytes));
  return {free_bytes, total_bytes};
}

}  // namespace apr::cuda
