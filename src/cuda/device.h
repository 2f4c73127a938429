// The GPUs of this machine, and whether one can be used. No CUDA header needed; in a build without
// CUDA the same functions answer "not compiled" (kFeatureDisabled).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apr/error.h"

namespace apr::cuda {

struct DeviceFacts {
  int ordinal = 0;   // --device takes it; CUDA_VISIBLE_DEVICES renumbers
  std::string name;  // "NVIDIA H200"
  int cc_major = 0, cc_minor = 0;
  std::string architecture;  // what kernels are compiled for: "sm_90a"
  int n_sm = 0;
  uint64_t total_bytes = 0, l2_bytes = 0;
  uint64_t shared_bytes_per_block = 0;  // the most a kernel may ask for
};

// Whether kernels can run, as a value: `code` kFeatureDisabled (not compiled in) or
// kBackendUnavailable where not.
struct Readiness {
  bool ready = false;
  ErrorCode code = ErrorCode::kBackendUnavailable;
  std::string reason;                 // what is wrong: "no NVIDIA driver: libcuda.so.1 ..."
  std::string remedy;                 // the line that would mend it
  std::optional<DeviceFacts> device;  // where one was reached
};

// Looks at driver, card and libraries for device `ordinal`; loads no model, takes no GPU memory,
// and stops at the first thing that is missing. Never throws for what it finds.
Readiness check_readiness(int ordinal);

// Makes device `ordinal` the calling thread's. Throws what check_readiness() says where it is not
// ready.
DeviceFacts use_device(int ordinal);

// Every device the driver shows, ready or not. Throws kFeatureDisabled, or kBackendUnavailable with
// the remedy where the driver does not answer.
std::vector<DeviceFacts> list_devices();

struct DeviceMemory {
  uint64_t free_bytes = 0, total_bytes = 0;
};

// Of the calling thread's device, after use_device().
DeviceMemory device_memory();

}  // namespace apr::cuda
