#include "cpu/core_quota.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <fstream>

namespace apr::cpu {
namespace {

// Cores of a quota in microseconds per period; none for "no quota" and for nonsense.
std::optional<int> cores(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  const int64_t whole = quota / period + (quota % period != 0 ? 1 : 0);
  return static_cast<int>(std::min<int64_t>(whole, INT_MAX));
}

// cgroup v2, one line: "max 100000" or "150000 100000".
std::optional<int> v2_quota(const std::string& group) {
  std::ifstream file(group + "/cpu.max");
  int64_t quota = 0, period = 0;
  return file >> quota >> period ? cores(quota, period) : std::nullopt;
}

// cgroup v1: two files; a quota of -1 is none.
std::optional<int> v1_quota(const std::string& group) {
  std::ifstream quota_file(group + "/cpu.cfs_quota_us"), period_file(group + "/cpu.cfs_period_us");
  int64_t quota = 0, period = 0;
  return quota_file >> quota && period_file >> period ? cores(quota, period) : std::nullopt;
}

bool has_controller(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

std::optional<int> cgroup_core_quota(const std::string& membership, const std::string& root) {
  std::optional<int> least;
  const auto narrow = [&least](std::optional<int> quota) {
    if (quota) {
      least = least ? std::min(*least, *quota) : *quota;
    }
  };
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    // "hierarchy:controllers:path"; no controllers means v2.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && !has_controller(controllers, "cpu")) {
      continue;
    }
    // The path may name a group outside of this mount (a container's view): then only the root,
    // which is the container's own group, can be read.
    std::string path = line.substr(second + 1);
    for (;;) {
      while (!path.empty() && path.back() == '/') {
        path.pop_back();
      }
      narrow(is_v2 ? v2_quota(root + path) : v1_quota(root + "/cpu" + path));
      if (path.empty()) {
        break;
      }
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return least;
}

}  // namespace apr::cpu
