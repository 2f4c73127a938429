#include "cuda/kernel_library.h"

#include <fmt/format.h>

#include "apr/error.h"
#include "cuda/error.h"

namespace apr::cuda {

KernelLibrary::KernelLibrary(KernelCompiler& compiler, std::span<const KernelRow> rows,
                             std::string_view arch, int64_t shared_bytes)
    : can_overlap_(architecture_number(arch) >= 90) {
  std::vector<CompileRequest> requests;
  for (const KernelRow& row : rows) {
    requests.push_back(compile_request(row, arch));
  }
  const std::vector<CompiledKernel> kernels = compiler.compile_all(requests);
  for (size_t idx = 0; idx < rows.size(); ++idx) {
    modules_.push_back(load_module(kernels[idx].cubin));
    const CUfunction function = get_function(modules_.back(), kernels[idx].lowered_names.front());
    const int most_shared =
        rows[idx].all_shared ? static_cast<int>(shared_bytes) : rows[idx].shared_bytes;
    if (most_shared > 0) {
      APR_CUDA(api().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        most_shared));
    }
    functions_.emplace(rows[idx].name, function);
  }
}

CUfunction KernelLibrary::find(std::string_view name) const {
  const auto found = functions_.find(name);
  APR_CHECK(found != functions_.end(), fmt::format("kernel {} was not loaded", name));
  return found->second;
}

}  // namespace apr::cuda
