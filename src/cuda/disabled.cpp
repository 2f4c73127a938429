// The functions of apr/cuda.h, dequant_check.h, device.h and doctor.h in a build without CUDA.
#include "apr/cuda.h"
#include "cuda/dequant_check.h"
#include "cuda/device.h"
#include "cuda/doctor.h"

namespace apr::cuda {
namespace {

constexpr const char* kReason = "this apr was built without CUDA";
constexpr const char* kRemedy = APR_CUDA_FIX;

[[noreturn]] void throw_disabled() {
  throw Error(ErrorCode::kFeatureDisabled, std::string(kReason) + "; " + kRemedy);
}

}  // namespace

Readiness check_readiness(int) {
  Readiness readiness;
  readiness.code = ErrorCode::kFeatureDisabled;
  readiness.reason = kReason;
  readiness.remedy = kRemedy;
  return readiness;
}

DeviceFacts use_device(int) {
  throw_disabled();
}

std::vector<DeviceFacts> list_devices() {
  throw_disabled();
}

DeviceMemory device_memory() {
  throw_disabled();
}

std::optional<std::string> missing_kernel(const Model&, const CudaBackendOptions&) {
  throw_disabled();
}

std::unique_ptr<Backend> make_cuda_backend(const Model&, const CudaBackendOptions&) {
  throw_disabled();
}

std::unique_ptr<TensorDecoder> make_tensor_decoder(int, const std::set<const QuantType*>&) {
  throw_disabled();
}

std::optional<PrefillGemmFacts> prefill_gemm_facts(const Backend&) {
  return std::nullopt;
}

std::optional<PrefillFacts> prefill_facts(const Backend&) {
  return std::nullopt;
}

std::string toolchain() {
  return {};
}

DeviceSpeed measure_speed(int) {
  throw_disabled();
}

DoctorReport examine(int ordinal) {
  DoctorReport report;
  report.readiness = check_readiness(ordinal);
  report.rows.push_back({"cuda", kReason, false, kRemedy});
  return report;
}

}  // namespace apr::cuda
