// What to do about a driver that does not answer.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace apr::cuda {

struct Diagnosis {
  std::string reason;  // what is wrong, in words
  std::string remedy;  // what mends it
};

// What this machine is like, as far as a diagnosis needs it.
struct DriverSurroundings {
  int driver_version = 0;             // as cudaDriverGetVersion gives it; 0: no driver
  bool has_card = false;              // an NVIDIA display or compute device on the PCI bus
  bool visible_devices_set = false;   // CUDA_VISIBLE_DEVICES exists
  std::string visible_devices;        // its value
  std::string kernel_module_version;  // "580.159.04"; empty: not loaded
  static DriverSurroundings of_this_machine(int driver_version);
};

// Explains `status`, which is not success, of the call that asks for the devices. Pure.
Diagnosis diagnose_driver(cudaError_t status, const DriverSurroundings& around);

// The oldest driver that runs this build: "580.65.06".
const char* oldest_driver();

// "13.0" for 13000.
std::string cuda_version_text(int version);

}  // namespace apr::cuda
