// Compiles kernels at run time with NVRTC, through a cache on disk. Needs no GPU.
#pragma once

#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cuda/kernel_cache.h"
#include "cuda/kernel_source.h"

namespace apr::cuda {

struct CompileRequest {
  std::string file;                    // under kernels/: "rms_norm.cu"
  std::vector<std::string> names;      // name expressions: "apr::rms_norm<4>"
  std::vector<std::string> options;    // beyond kCommonOptions: "--fmad=false"
  std::string arch;                    // "sm_90a"
  std::string quant_file = {};         // what APR_QUANT_FILE names: "quant/q4_k.cuh"; may be empty
  std::string second_quant_file = {};  // and APR_SECOND_QUANT_FILE
};

class KernelCompiler {
 public:
  // `sources`: the include tree; it and what it views must outlive this object.
  explicit KernelCompiler(std::filesystem::path cache_dir = kernel_cache_dir(),
                          std::span<const KernelSource> sources = embedded_sources());

  // The machine code of `request`, from the cache where it is there. Throws kBackendUnavailable:
  // NVRTC is not there, does not know the architecture, or refuses the text (its log is in the
  // message). Threads may call this at the same time.
  CompiledKernel compile(const CompileRequest& request);

  // Results in the order of `requests`; `n_threads` compile at a time, 0: one a core. Throws the
  // first failure after all threads have ended.
  std::vector<CompiledKernel> compile_all(std::span<const CompileRequest> requests,
                                          int n_threads = 0);

  // The name of the cache entry: architecture, file, and a hash of all that decides the result
  // (texts, names, options, architecture, NVRTC's version).
  std::string cache_key(const CompileRequest& request) const;

  int n_compiled() const { return n_compiled_; }  // not found in the cache
  int n_cached() const { return n_cached_; }

 private:
  // The kernel's file first, then what it and the quant file include.
  std::vector<KernelSource> sources_of(const CompileRequest& request) const;
  CompiledKernel compile_now(const CompileRequest& request) const;

  KernelCache cache_;
  std::span<const KernelSource> sources_;
  std::atomic<int> n_compiled_{0}, n_cached_{0};
};

// "13.0"; throws kBackendUnavailable where NVRTC is not there.
std::string nvrtc_version();

}  // namespace apr::cuda
