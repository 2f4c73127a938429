// The CPU quota of a container, in whole cores.
#pragma once

#include <optional>
#include <string>

namespace apr::cpu {

// The smallest quota over the control groups of this process and their parents, rounded up to
// cores, at least 1; none where there is no quota or nothing can be read. `membership`: the file
// /proc/self/cgroup; `root`: where cgroup v2 (cpu.max) or v1 (cpu/cpu.cfs_quota_us) is mounted.
std::optional<int> cgroup_core_quota(const std::string& membership, const std::string& root);

}  // namespace apr::cpu
