#include "cli/load.h"

#include <fmt/format.h>

#include "apr/error.h"
#include "apr/quant.h"
#include "base/log.h"

extern "C" {
// The GGUF file named by APR_DEMO_MODEL, assembled into the program.
extern const std::byte apr_demo_model_begin[];
extern const std::byte apr_demo_model_end[];
}

namespace apr::cli {

const char* const kCudaRemedy = "this apr was built without CUDA; to get it: " APR_CUDA_FIX;

nlohmann::ordered_json BackendChoice::to_json() const {
  return {{"requested", requested}, {"ran", ran}, {"fell_back", fell_back()}, {"reason", reason}};
}

BackendChoice choose_backend(const BackendOptions& options) {
  if (options.no_gpu && (options.gpu || options.backend == "cuda")) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} and --no-gpu contradict each other; give one of them",
                            options.gpu ? "--gpu" : "--backend cuda"));
  }
  if (options.gpu || options.backend == "cuda") {
    throw Error(ErrorCode::kFeatureDisabled,
                fmt::format("{}: {}; --no-gpu runs on the CPU",
                            options.gpu ? "--gpu" : "--backend cuda", kCudaRemedy));
  }
  if (options.no_gpu || options.backend == "cpu") {
    return {"cpu", "cpu", options.no_gpu ? "asked for by --no-gpu" : "asked for by --backend cpu"};
  }
  return {"default", "cpu", "this apr was built without CUDA"};
}

GgufFile open_model_file(const std::string& model) {
  if (model == "demo") {
    return GgufFile::from_memory({apr_demo_model_begin, apr_demo_model_end}, model,
                                 quant_type_layout, quant_type_label);
  }
  if (model.find("://") != std::string::npos) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is an address; MODEL is a GGUF file on this machine, apr does not "
                            "download",
                            model));
  }
  return GgufFile::open(model, quant_type_layout, quant_type_label);
}

std::unique_ptr<Backend> make_backend(const Model& model, const EngineOptions& engine,
                                      int64_t context, int64_t max_logit_rows) {
  const int64_t model_context = model.desc().context_length;
  if (context > model_context) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--context is {}; the model's context is {} tokens, allowed: 1 to {}",
                            context, model_context, model_context));
  }
  CpuBackendOptions options;
  options.n_threads = engine.n_threads;
  options.context = context;
  options.prefill_chunk = engine.prefill_chunk;
  options.max_logit_rows = max_logit_rows;
  options.kernels = engine.exact ? KernelSet::kReference : KernelSet::kFast;
  return make_cpu_backend(model, options);
}

void announce(const BackendChoice& choice, const Backend& backend) {
  log_note(fmt::format("selected: {} device={} (reason: {})", choice.ran, backend.device_name(),
                       choice.reason));
}

}  // namespace apr::cli
