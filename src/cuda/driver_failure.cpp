#include "cuda/driver_failure.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace apr::cuda {
namespace {

// A display (0x03) or processing (0x12) device of NVIDIA's.
bool has_nvidia_card() {
  std::error_code error;
  const std::filesystem::path bus = "/sys/bus/pci/devices";
  for (std::filesystem::directory_iterator it(bus, error), end; !error && it != end;
       it.increment(error)) {
    std::string vendor, kind;
    std::ifstream(it->path() / "vendor") >> vendor;
    std::ifstream(it->path() / "class") >> kind;
    if (vendor == "0x10de" && (kind.starts_with("0x03") || kind.starts_with("0x12"))) {
      return true;
    }
  }
  return false;
}

// From "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue ...".
std::string loaded_module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != word.npos) {
      return word;
    }
  }
  return {};
}

std::string install_driver() {
  return fmt::format(
      "install NVIDIA driver {} or newer (Ubuntu: sudo apt-get install nvidia-driver-580; else "
      "https://www.nvidia.com/drivers) and reboot; a container must be started with --gpus all",
      oldest_driver());
}

Diagnosis no_driver(const DriverSurroundings& around) {
  if (around.has_card) {
    return {"an NVIDIA card is here, but no NVIDIA driver (libcuda.so.1)", install_driver()};
  }
  return {"no NVIDIA driver (libcuda.so.1) and no NVIDIA card",
          "run on the CPU with --no-gpu; if this machine has a card, " + install_driver()};
}

Diagnosis no_device(const DriverSurroundings& around) {
  if (around.visible_devices_set) {
    return {fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides every GPU", around.visible_devices),
            "unset CUDA_VISIBLE_DEVICES"};
  }
  return {"the NVIDIA driver is here, but sees no GPU",
          "nvidia-smi must list the card; a container must be started with --gpus all"};
}

}  // namespace

DriverSurroundings DriverSurroundings::of_this_machine(int driver_version) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return {driver_version, has_nvidia_card(), visible != nullptr, visible == nullptr ? "" : visible,
          loaded_module_version()};
}

const char* oldest_driver() {
  // From the release notes: the first driver of each major version; minor versions are compatible.
  return CUDART_VERSION >= 13000 ? "580.65.06" : "525.60.13";
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Diagnosis diagnose_driver(cudaError_t status, const DriverSurroundings& around) {
  const std::string module = around.kernel_module_version.empty()
                                 ? std::string()
                                 : fmt::format(" (kernel module {})", around.kernel_module_version);
  switch (status) {
    case cudaErrorInsufficientDriver:  // 35
      if (around.driver_version == 0) {
        return no_driver(around);
      }
      return {
          fmt::format("the NVIDIA driver{} is for CUDA {}, this apr needs {}", module,
                      cuda_version_text(around.driver_version), cuda_version_text(CUDART_VERSION)),
          install_driver()};
    case cudaErrorNoDevice:  // 100
      return no_device(around);
    case cudaErrorInvalidDevice:  // 101
      return {fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" names a GPU that is not here",
                          around.visible_devices),
              "unset CUDA_VISIBLE_DEVICES, or name GPUs that `nvidia-smi -L` lists"};
    case cudaErrorSystemDriverMismatch:  // 803
      return {fmt::format("the NVIDIA driver's library and its kernel module{} have different "
                          "versions; the driver was updated since the machine started",
                          module),
              "sudo reboot"};
    case cudaErrorCompatNotSupportedOnDevice:  // 804
      return {
          "a cuda-compat library stands in for the driver's own, which this card does not allow",
          "sudo apt-get remove 'cuda-compat-*', or take its folder out of LD_LIBRARY_PATH"};
    case cudaErrorSystemNotReady:  // 802
      return {"the driver waits for the NVLink fabric",
              "sudo systemctl start nvidia-fabricmanager"};
    case cudaErrorMpsConnectionFailed:  // 805
      return {"the CUDA MPS server does not answer",
              "echo quit | nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY"};
    case cudaErrorDevicesUnavailable:  // 46
      return {"every GPU is in use by another process in exclusive mode, or prohibited",
              "sudo nvidia-smi -c DEFAULT, or end the process that `nvidia-smi` shows"};
    case cudaErrorOperatingSystem:  // 304
      return {"the system denies access to the GPU's device files",
              "sudo usermod -aG video,render $USER and log in again; a container must be started "
              "with --gpus all"};
    case cudaErrorUnknown:  // 999
      return {fmt::format("the NVIDIA driver{} fails to start", module),
              "sudo modprobe nvidia_uvm; where that does not help, sudo reboot"};
    default:
      return {fmt::format("the NVIDIA driver{} does not answer", module),
              "nvidia-smi shows whether the driver works; where it fails, sudo reboot"};
  }
}

}  // namespace apr::cuda
