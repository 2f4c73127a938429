// Kernels of one device: compiled or taken from the cache, loaded, found by their row's name.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "cuda/handles.h"
#include "cuda/kernel_table.h"

namespace apr::cuda {

class KernelLibrary {
 public:
  // Compiles `rows` for `arch` with every core and loads them into the calling thread's device.
  // Launches may ask for `shared_bytes` of dynamic shared memory where a row says so (all_shared).
  // Throws kBackendUnavailable.
  KernelLibrary(KernelCompiler& compiler, std::span<const KernelRow> rows, std::string_view arch,
                int64_t shared_bytes = kLeastMostShared);

  // The kernel of a row given to the constructor; aborts for another (our own bug).
  CUfunction find(std::string_view name) const;

  // Programmatic dependent launch: sm_90 and later.
  bool can_overlap() const { return can_overlap_; }

 private:
  bool can_overlap_;
  std::vector<Module> modules_;
  std::map<std::string, CUfunction, std::less<>> functions_;
};

}  // namespace apr::cuda
