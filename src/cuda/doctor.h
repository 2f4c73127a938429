// What `apr doctor` says about CUDA: driver, runtime, cards, libraries and where they were found,
// kernel cache, and the line that would mend what is missing. No CUDA header needed.
#pragma once

#include <string>
#include <vector>

#include "cuda/device.h"

namespace apr::cuda {

struct DoctorRow {
  std::string key;  // stable, for JSON: "nvrtc"
  std::string value;
  bool good = true;
  std::string remedy = {};  // where not good
};

struct DoctorReport {
  bool compiled = false;  // CUDA is in this build
  Readiness readiness;    // of the device asked for
  std::vector<DeviceFacts> devices;
  std::vector<DoctorRow> rows;
  std::vector<std::string> tried;  // each place a library was looked for in vain, with the reason
};

// Never throws for what it finds; takes no GPU memory.
DoctorReport examine(int ordinal);

}  // namespace apr::cuda
