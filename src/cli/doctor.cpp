// apr doctor: what this machine and this build offer.
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <hwy/highway.h>
#include <pcre2.h>
#include <sched.h>
#include <spdlog/version.h>
#include <unistd.h>
#include <utf8proc.h>
#include <CLI/Version.hpp>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/format.h"
#include "cli/devices.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "cuda/doctor.h"

namespace apr::cli {
namespace {

using Json = nlohmann::ordered_json;

class DoctorVerb : public Verb {
 public:
  void add_options(CLI::App& app) override {
    add_devices(app, backend_);
    add_output(app, output, false);
  }
  int run() override;

 private:
  BackendOptions backend_;
};

// What follows "key" and a colon on its line of a /proc file; empty where it is absent.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) {
      const size_t first = line.find_first_not_of(" \t", colon + 1);
      return first == std::string::npos ? std::string() : line.substr(first);
    }
  }
  return {};
}

// /proc/meminfo counts in kB of 1024 bytes.
uint64_t meminfo_bytes(const std::string& key) {
  constexpr uint64_t kBytesPerUnit = 1024;
  std::istringstream text(proc_value("/proc/meminfo", key));
  uint64_t units = 0;
  text >> units;
  return units * kBytesPerUnit;
}

int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0
             ? CPU_COUNT(&cores)
             : static_cast<int>(std::thread::hardware_concurrency());
}

// The name of the CPU backend with its instruction set; a backend exists only for a model, so for
// the one in this program.
std::string cpu_backend_name() {
  const Model model(open_model_file("demo"));
  return make_cpu_backend(model, {.context = 1})->device_name();
}

Json libraries_json() {
  std::array<char, 64> pcre2{};
  ::pcre2_config(PCRE2_CONFIG_VERSION, pcre2.data());
  return {{"CLI11", CLI11_VERSION},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                              FMT_VERSION % 100)},
          {"spdlog", fmt::format("{}.{}.{}", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH)},
          {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                        NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
          {"pcre2", pcre2.data()},
          {"utf8proc", ::utf8proc_version()},
          {"unicode", ::utf8proc_unicode_version()},
          {"highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)},
          {"glibc", ::gnu_get_libc_version()}};
}

Json cuda_json(int device) {
  const cuda::DoctorReport report = cuda::examine(device);
  Json json = {{"compiled", report.compiled}, {"ready", report.readiness.ready}};
  if (!report.readiness.ready) {
    json["reason"] = report.readiness.reason;
    json["remedy"] = report.readiness.remedy;
  }
  json["devices"] = devices_json(report.devices);
  for (const cuda::DoctorRow& row : report.rows) {
    json[row.key] = row.value;
    if (!row.good && row.remedy != report.readiness.remedy) {
      json[row.key + "_remedy"] = row.remedy;
    }
  }
  json["looked_in_vain"] = report.tried;
  return json;
}

int DoctorVerb::run() {
  const Json json = {{"cpu",
                      {{"model", proc_value("/proc/cpuinfo", "model name")},
                       {"backend", cpu_backend_name()},
                       {"cores_usable", usable_cores()},
                       {"cores_online", ::sysconf(_SC_NPROCESSORS_ONLN)}}},
                     {"memory",
                      {{"total_bytes", meminfo_bytes("MemTotal")},
                       {"available_bytes", meminfo_bytes("MemAvailable")},
                       {"page_bytes", ::sysconf(_SC_PAGESIZE)}}},
                     {"build",
                      {{"version", APR_VERSION},
                       {"compiler", std::string("g++ ") + __VERSION__},
                       {"type", APR_BUILD_TYPE}}},
                     {"cuda", cuda_json(backend_.device.value_or(0))},
                     {"libraries", libraries_json()}};
  if (output.is_json()) {
    write_json(json, true);
    return 0;
  }
  std::string text;
  for (const auto& [group, members] : json.items()) {
    for (const auto& [key, value] : members.items()) {
      const bool is_size = key == "total_bytes" || key == "available_bytes";
      text += fmt::format("{:<24} {}\n", group + "." + key,
                          is_size             ? format_bytes(value.get<uint64_t>())
                          : value.is_string() ? value.get<std::string>()
                                              : value.dump());
    }
  }
  write_stdout(text);
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_doctor_verb() {
  return std::make_unique<DoctorVerb>();
}

}  // namespace apr::cli
