#include "cuda/nvrtc.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <system_error>
#include <thread>

#include "apr/error.h"
#include "cuda/content_hash.h"
#include "cuda/error.h"
#include "cuda/handles.h"

namespace apr::cuda {
namespace {

// The log then tells registers and spilled bytes; the spill tests read it, also from the cache.
constexpr std::array kCommonOptions{"--std=c++20", "--device-as-default-execution-space",
                                    "--ptxas-options=--verbose",
                                    "--ptxas-options=--warn-on-spills"};

void destroy_program(nvrtcProgram program) noexcept {
  APR_CUDA_LOG(api().nvrtcDestroyProgram(&program));
}
using Program = UniqueHandle<nvrtcProgram, destroy_program>;

Program create_program(const std::vector<KernelSource>& sources) {
  // NVRTC wants strings that end in a zero.
  std::vector<std::string> paths, texts;
  for (const KernelSource& source : sources) {
    paths.emplace_back(source.path);
    texts.emplace_back(source.text);
  }
  std::vector<const char*> include_paths, include_texts;
  for (size_t source = 1; source < sources.size(); ++source) {
    include_paths.push_back(paths[source].c_str());
    include_texts.push_back(texts[source].c_str());
  }
  nvrtcProgram program = nullptr;
  APR_CUDA(api().nvrtcCreateProgram(&program, texts[0].c_str(), paths[0].c_str(),
                                    static_cast<int>(include_paths.size()), include_texts.data(),
                                    include_paths.data()));
  return Program(program);
}

std::string program_log(const Program& program) {
  size_t size = 0;
  APR_CUDA(api().nvrtcGetProgramLogSize(program.get(), &size));
  std::string log(size, '\0');
  APR_CUDA(api().nvrtcGetProgramLog(program.get(), log.data()));
  log.resize(std::min(log.find('\0'), log.size()));  // the size counts the final zero
  return log;
}

}  // namespace

KernelCompiler::KernelCompiler(std::filesystem::path cache_dir,
                               std::span<const KernelSource> sources)
    : cache_(std::move(cache_dir)), sources_(sources) {}

std::vector<KernelSource> KernelCompiler::sources_of(const CompileRequest& request) const {
  std::vector<KernelSource> sources = with_includes(sources_, request.file);
  for (const std::string& file : {request.quant_file, request.second_quant_file}) {
    if (file.empty()) {
      continue;
    }
    for (const KernelSource& source : with_includes(sources_, file)) {
      const auto same_path = [&](const KernelSource& other) { return other.path == source.path; };
      if (std::none_of(sources.begin(), sources.end(), same_path)) {
        sources.push_back(source);
      }
    }
  }
  return sources;
}

std::string KernelCompiler::cache_key(const CompileRequest& request) const {
  ContentHash hash;
  hash.add(nvrtc_version());
  hash.add(request.arch);
  const auto add_list = [&hash](const auto& list) {
    hash.add(std::to_string(list.size()));
    for (const auto& item : list) {
      hash.add(item);
    }
  };
  add_list(kCommonOptions);
  add_list(request.options);
  add_list(request.names);
  for (const KernelSource& source : sources_of(request)) {
    hash.add(source.path);
    hash.add(source.text);
  }
  const std::string stem = std::filesystem::path(request.file).stem().string();
  return fmt::format("{}-{}-{}", request.arch, stem, hash.hex());
}

CompiledKernel KernelCompiler::compile(const CompileRequest& request) {
  const std::string key = cache_key(request);
  if (auto found = cache_.find(key); found && found->lowered_names.size() == request.names.size()) {
    ++n_cached_;
    return *std::move(found);
  }
  CompiledKernel kernel = compile_now(request);
  ++n_compiled_;
  cache_.store(key, kernel);
  return kernel;
}

CompiledKernel KernelCompiler::compile_now(const CompileRequest& request) const {
  const Program program = create_program(sources_of(request));
  for (const std::string& name : request.names) {
    APR_CUDA(api().nvrtcAddNameExpression(program.get(), name.c_str()));
  }
  const std::string arch_option = "--gpu-architecture=" + request.arch;
  std::vector<const char*> options(kCommonOptions.begin(), kCommonOptions.end());
  options.push_back(arch_option.c_str());
  for (const std::string& option : request.options) {
    options.push_back(option.c_str());
  }
  std::vector<std::string> macros;
  for (const auto& [macro, file] :
       {std::pair{"APR_QUANT_FILE", &request.quant_file},
        std::pair{"APR_SECOND_QUANT_FILE", &request.second_quant_file}}) {
    if (!file->empty()) {
      macros.push_back(fmt::format("--define-macro={}=\"{}\"", macro, *file));
    }
  }
  for (const std::string& macro : macros) {
    options.push_back(macro.c_str());
  }
  const nvrtcResult status =
      api().nvrtcCompileProgram(program.get(), static_cast<int>(options.size()), options.data());
  CompiledKernel kernel;
  kernel.log = program_log(program);
  if (status == NVRTC_ERROR_INVALID_OPTION) {
    throw Error(ErrorCode::kBackendUnavailable,
                fmt::format("NVRTC {} cannot compile kernels/{} for {}: {}; a newer NVRTC can: "
                            "pip install -U nvidia-cuda-nvrtc",
                            nvrtc_version(), request.file, request.arch, kernel.log));
  }
  if (status != NVRTC_SUCCESS) {
    throw Error(ErrorCode::kBackendUnavailable,
                fmt::format("nvrtcCompileProgram (NVRTC {}) refuses kernels/{} ({}) for {}: {}: {}",
                            nvrtc_version(), request.file, fmt::join(request.names, ", "),
                            request.arch, describe(status), kernel.log));
  }
  size_t size_bytes = 0;
  APR_CUDA(api().nvrtcGetCUBINSize(program.get(), &size_bytes));
  kernel.cubin.resize(size_bytes);
  APR_CUDA(api().nvrtcGetCUBIN(program.get(), reinterpret_cast<char*>(kernel.cubin.data())));
  for (const std::string& name : request.names) {
    const char* lowered = nullptr;
    APR_CUDA(api().nvrtcGetLoweredName(program.get(), name.c_str(), &lowered));
    kernel.lowered_names.emplace_back(lowered);
  }
  return kernel;
}

std::vector<CompiledKernel> KernelCompiler::compile_all(std::span<const CompileRequest> requests,
                                                        int n_threads) {
  require_library(Library::kNvrtc);
  std::vector<CompiledKernel> results(requests.size());
  std::vector<std::exception_ptr> failures(requests.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (size_t idx = next++; idx < requests.size() && !failed; idx = next++) {
      try {
        results[idx] = compile(requests[idx]);
      } catch (...) {
        failures[idx] = std::current_exception();
        failed = true;
      }
    }
  };
  size_t n_workers = n_threads > 0 ? static_cast<size_t>(n_threads)
                                   : std::max(1U, std::thread::hardware_concurrency());
  n_workers = std::min(n_workers, requests.size());
  {
    std::vector<std::jthread> workers;
    try {
      for (size_t worker = 1; worker < n_workers; ++worker) {
        workers.emplace_back(work);
      }
    } catch (const std::system_error&) {  // no more threads to have: fewer do it
    }
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
  return results;
}

std::string nvrtc_version() {
  require_library(Library::kNvrtc);
  int major = 0;
  int minor = 0;
  APR_CUDA(api().nvrtcVersion(&major, &minor));
  return fmt::format("{}.{}", major, minor);
}

}  // namespace apr::cuda
