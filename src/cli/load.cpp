#include "cli/load.h"

#include <fmt/format.h>

#include "apr/cuda.h"
#include "apr/error.h"
#include "apr/quant.h"
#include "base/log.h"

extern "C" {
// The GGUF file named by APR_DEMO_MODEL, assembled into the program.
extern const std::byte apr_demo_model_begin[];
extern const std::byte apr_demo_model_end[];
}

namespace apr::cli {

nlohmann::ordered_json BackendChoice::to_json() const {
  return {{"requested", requested}, {"ran", ran}, {"fell_back", fell_back()}, {"reason", reason}};
}

BackendChoice choose_backend(const BackendOptions& options,
                             const std::function<cuda::Readiness()>& check_gpu) {
  const bool is_forced = options.gpu || options.backend == "cuda";
  const char* flag = options.gpu ? options.gpu_flag : "--backend cuda";
  if (options.no_gpu && is_forced) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} and --no-gpu contradict each other; give one of them", flag));
  }
  if (options.no_gpu || (options.backend == "cpu" && !is_forced)) {
    return {"cpu", "cpu", options.no_gpu ? "asked for by --no-gpu" : "asked for by --backend cpu"};
  }
  const cuda::Readiness gpu = check_gpu();
  if (is_forced && !gpu.ready) {
    const bool says_it = gpu.remedy.find("--no-gpu") != std::string::npos;
    throw RefusedBackend(gpu.code, fmt::format("{}: {}; {}{}", flag, gpu.reason, gpu.remedy,
                                               says_it ? "" : "; --no-gpu runs on the CPU"));
  }
  if (!gpu.ready) {
    return {"default", "cpu", gpu.reason};
  }
  return {is_forced ? "gpu" : "default", "gpu",
          is_forced ? fmt::format("asked for by {}", flag) : "a GPU is ready",
          options.device.value_or(0)};
}

BackendChoice choose_backend(const BackendOptions& options) {
  return choose_backend(options, [&] { return cuda::check_readiness(options.device.value_or(0)); });
}

GgufFile open_model_file(const std::string& model) {
  if (model == "demo") {
    return GgufFile::from_memory(demo_image(), model, quant_type_layout, quant_type_label);
  }
  if (model.find("://") != std::string::npos) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is an address; MODEL is a GGUF file on this machine, apr does not "
                            "download",
                            model));
  }
  return GgufFile::open(model, quant_type_layout, quant_type_label);
}

std::span<const std::byte> demo_image() {
  return {apr_demo_model_begin, apr_demo_model_end};
}

void check_context(const Model& model, int64_t context) {
  const int64_t model_context = model.desc().context_length;
  if (context > model_context) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--context is {}; the model's context is {} tokens, allowed: 1 to {}",
                            context, model_context, model_context));
  }
}

std::unique_ptr<Backend> make_backend(const Model& model, const EngineOptions& engine,
                                      BackendChoice& choice, int64_t context,
                                      int64_t max_logit_rows) {
  check_context(model, context);
  if (model.desc().n_mtp_layers > 0) {
    log_note(fmt::format("{} multi-token-prediction block{} of the file left out",
                         model.desc().n_mtp_layers, model.desc().n_mtp_layers == 1 ? "" : "s"));
  }
  if (choice.used_gpu()) {
    try {
      return cuda::make_cuda_backend(model, {.device = choice.device,
                                             .context = context,
                                             .prefill_chunk = engine.prefill_chunk,
                                             .max_logit_rows = max_logit_rows,
                                             .exact = engine.exact,
                                             .prefill_path = engine.prefill,
                                             .fp8_prefill_off = engine.fp8_prefill_off,
                                             .vram_bytes = engine.vram_bytes});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBackendUnavailable) {
        throw;
      }
      if (choice.requested == "gpu") {
        throw RefusedBackend(error.code(),
                             fmt::format("{}; --no-gpu runs on the CPU", error.what()));
      }
      choice.ran = "cpu";
      choice.gpu_was_tried = true;
      choice.reason = error.what();
    }
  }
  return make_cpu(model, engine, context, max_logit_rows);
}

std::unique_ptr<Backend> make_cpu(const Model& model, const EngineOptions& engine, int64_t context,
                                  int64_t max_logit_rows, KernelSet kernels) {
  CpuBackendOptions options;
  options.n_threads = engine.n_threads;
  options.context = context;
  options.prefill_chunk = engine.prefill_chunk;
  options.max_logit_rows = max_logit_rows;
  options.kernels = kernels;
  return make_cpu_backend(model, options);
}

nlohmann::ordered_json prefill_gemm_json(const Backend& backend) {
  const auto facts = cuda::prefill_gemm_facts(backend);
  return facts ? nlohmann::ordered_json{{"requested", facts->requested},
                                        {"ran", facts->ran},
                                        {"reason", facts->reason},
                                        {"tier", facts->tier}}
               : nlohmann::ordered_json();
}

nlohmann::ordered_json prefill_json(const Backend& backend) {
  const auto facts = cuda::prefill_facts(backend);
  return facts ? nlohmann::ordered_json{{"path", facts->path},
                                        {"precision", facts->precision},
                                        {"reason", facts->reason},
                                        {"need_bytes", facts->need_bytes},
                                        {"free_bytes", facts->free_bytes},
                                        {"planned_bytes", facts->planned_bytes},
                                        {"chunk", facts->chunk}}
               : nlohmann::ordered_json();
}

void announce(const BackendChoice& choice, const Backend& backend) {
  const bool not_asked_for = choice.requested != "cpu" && !choice.used_gpu();
  log_note(fmt::format("selected: {} device={} ({}: {})", choice.ran, backend.device_name(),
                       not_asked_for ? "runs on the CPU" : "reason", choice.reason));
}

}  // namespace apr::cli
