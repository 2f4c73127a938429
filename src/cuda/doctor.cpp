#include "cuda/doctor.h"

#include <fmt/format.h>

#include "base/format.h"
#include "cuda/driver_failure.h"
#include "cuda/error.h"
#include "cuda/handles.h"
#include "cuda/kernel_cache.h"
#include "cuda/nvrtc.h"

namespace apr::cuda {
namespace {

DoctorRow driver_row() {
  int version = 0;
  const cudaError_t status = api().cudaDriverGetVersion(&version);
  const DriverSurroundings around = DriverSurroundings::of_this_machine(version);
  if (status != cudaSuccess || version == 0) {
    const Diagnosis diagnosis =
        diagnose_driver(status == cudaSuccess ? cudaErrorInsufficientDriver : status, around);
    return {"driver", diagnosis.reason, false, diagnosis.remedy};
  }
  const LibraryFacts& library = api().library(Library::kDriver);
  std::string value = fmt::format("for CUDA {}", cuda_version_text(version));
  if (!around.kernel_module_version.empty()) {
    value += fmt::format(", kernel module {}", around.kernel_module_version);
  }
  value += fmt::format(", {}", library.loaded ? library.path : library.reason);
  return {"driver", value, library.loaded,
          library.loaded ? "" : fmt::format("install driver {} or newer", oldest_driver())};
}

DoctorRow runtime_row() {
  int version = 0;
  const cudaError_t status = api().cudaRuntimeGetVersion(&version);
  return status == cudaSuccess
             ? DoctorRow{"runtime", fmt::format("CUDA {}, {}", cuda_version_text(version),
                                                api().library(Library::kRuntime).path)}
             : DoctorRow{"runtime", describe(status), false};
}

DoctorRow library_row(const char* key, Library library, const std::string& remedy) {
  const LibraryFacts& facts = api().library(library);
  return facts.loaded ? DoctorRow{key, facts.path} : DoctorRow{key, facts.reason, false, remedy};
}

DoctorRow version_row(const char* key, std::string (*version)()) {
  try {
    return {key, version()};
  } catch (const Error& error) {
    return {key, error.what(), false};
  }
}

DoctorRow cache_row() {
  const std::filesystem::path dir = kernel_cache_dir();
  if (dir.empty()) {
    return {"kernel_cache", "none: neither XDG_CACHE_HOME nor HOME is an absolute path", false,
            "export XDG_CACHE_HOME=/var/tmp/cache"};
  }
  const CacheUse use = kernel_cache_use(dir);
  return {"kernel_cache",
          fmt::format("{}: {} kernels, {}{}", dir.string(), use.n_entries,
                      format_bytes(use.size_bytes), use.writable ? "" : "; cannot be written"),
          use.writable,
          use.writable ? "" : fmt::format("make {} writable, or set XDG_CACHE_HOME", dir.string())};
}

}  // namespace

DoctorReport examine(int ordinal) {
  DoctorReport report;
  report.compiled = true;
  report.readiness = check_readiness(ordinal);
  try {
    report.devices = list_devices();
  } catch (const Error&) {  // the readiness says the same
  }
  report.rows.push_back(driver_row());
  report.rows.push_back(runtime_row());
  const std::string remedy = library_remedy();
  report.rows.push_back(library_row("nvrtc", Library::kNvrtc, remedy));
  if (report.rows.back().good) {
    report.rows.push_back(version_row("nvrtc_version", nvrtc_version));
  }
  report.rows.push_back(library_row("cublas_lt", Library::kCublasLt, remedy));
  report.rows.push_back(library_row("cublas", Library::kCublas, remedy));
  if (report.rows.back().good) {
    report.rows.push_back(version_row("cublas_version", cublas_version));
  }
  report.rows.push_back(cache_row());
  for (const Library library :
       {Library::kDriver, Library::kNvrtc, Library::kCublasLt, Library::kCublas}) {
    for (const LibraryAttempt& attempt : api().library(library).attempts) {
      if (!attempt.error.empty()) {
        report.tried.push_back(fmt::format("{}: {}", attempt.path, attempt.error));
      }
    }
  }
  return report;
}

}  // namespace apr::cuda
