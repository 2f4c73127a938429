// apr fit: whether a model fits a card, and which prefill it gets there. Needs no GPU.
#include <fmt/format.h>

#include "apr/error.h"
#include "apr/fit.h"
#include "apr/plan.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/ignored_flags.h"
#include "cli/load.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "cuda/device.h"
#include "cuda/memory_plan.h"

namespace apr::cli {
namespace {

using cuda::MemoryUse;
using Json = nlohmann::ordered_json;

class FitVerb : public Verb {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  cuda::CardFacts card() const;

  std::string model_;
  uint64_t free_bytes_ = 0;  // 0: not given
  EngineOptions engine_;
  BackendOptions devices_;
};

void FitVerb::add_options(CLI::App& app) {
  add_model(app, model_);
  add_value(
      app, "--free", "BYTES",
      [this](const std::string& text) { free_bytes_ = parse_memory("--free", text); },
      "Memory of the card that is free; default: all but 1,276 MiB of --vram");
  add_lengths(app, engine_, "the model's");
  add_prefill(app, engine_);
  add_devices(app, devices_);
  add_output(app, output, false);
}

// The card of --vram and --free, else the one in this machine.
cuda::CardFacts FitVerb::card() const {
  cuda::CardFacts card;
  if (engine_.vram_bytes > 0 || free_bytes_ > 0) {
    card.total_bytes = engine_.vram_bytes > 0 ? engine_.vram_bytes : free_bytes_;
    card.free_bytes = free_bytes_ > 0 ? free_bytes_ : free_bytes_of_card(engine_.vram_bytes);
    if (card.free_bytes > card.total_bytes) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--free is {}, more than the card's {}",
                              format_bytes(card.free_bytes), format_bytes(card.total_bytes)));
    }
    return card;
  }
  const int ordinal = devices_.device.value_or(0);
  if (const cuda::Readiness gpu = cuda::check_readiness(ordinal); !gpu.ready) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("no GPU to ask ({}); say which card is meant, as --vram 24G", gpu.reason));
  }
  const cuda::DeviceFacts device = cuda::use_device(ordinal);
  const cuda::DeviceMemory memory = cuda::device_memory();
  return {device.cc_major * 10 + device.cc_minor, device.n_sm, memory.free_bytes,
          memory.total_bytes};
}

// A build without CUDA knows no kernels, so it misses none.
std::optional<std::string> kernel_that_is_missing(const Model& model,
                                                  const cuda::CudaBackendOptions& options) {
  try {
    return cuda::missing_kernel(model, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFeatureDisabled) {
      throw;
    }
    return std::nullopt;
  }
}

Json fit_json(const cuda::PrefillDecision& decision) {
  const cuda::MemoryPlan& memory = decision.memory;
  const uint64_t planned_bytes = memory.planned_bytes();
  return {
      {"free_bytes", decision.free_bytes},
      {"need_bytes", decision.need.total_bytes()},
      {"need",
       {{"weights_bytes", decision.need.weights_bytes},
        {"cache_bytes", decision.need.cache_bytes},
        {"kv_bytes", decision.need.kv_bytes},
        {"reserve_bytes", decision.need.reserve_bytes}}},
      {"planned_bytes", planned_bytes},
      {"planned",
       {{"weights_bytes", memory.bytes(MemoryUse::kWeights)},
        {"cache_bytes", memory.bytes(MemoryUse::kHalfWeights)},
        {"kv_bytes", memory.bytes(MemoryUse::kKv)},
        {"states_bytes", memory.bytes(MemoryUse::kStates)},
        {"workspace_bytes", memory.bytes(MemoryUse::kWorkspace)},
        {"libraries_bytes", memory.bytes(MemoryUse::kLibraries)}}},
      {"fits", planned_bytes <= decision.free_bytes},
      {"decision", decision.refusal.empty() ? prefill_path_name(decision.choice.path) : "refused"},
      {"precision", cuda::prefill_gemm_name(decision.gemm)},
      {"chunk", decision.chunk},
      {"reason", decision.refusal.empty() ? decision.choice.reason : decision.refusal}};
}

std::string fit_text(const Json& json) {
  const auto bytes = [](const Json& value) { return format_bytes(value.get<uint64_t>()); };
  std::string text = fmt::format("{:<22}{:>12}{:>12}\n", "", "need", "planned");
  const auto row = [&](const char* name, const char* key) {
    const Json &need = json["need"], &planned = json["planned"];
    text += fmt::format("{:<22}{:>12}{:>12}\n", name, need.contains(key) ? bytes(need[key]) : "-",
                        planned.contains(key) ? bytes(planned[key]) : "-");
  };
  row("weights", "weights_bytes");
  row("prefill weights", "cache_bytes");
  row("KV cache", "kv_bytes");
  row("recurrent states", "states_bytes");
  row("workspace", "workspace_bytes");
  row("libraries", "libraries_bytes");
  row("reserve", "reserve_bytes");
  text += fmt::format("{:<22}{:>12}{:>12}   of {} free\n", "total", bytes(json["need_bytes"]),
                      bytes(json["planned_bytes"]), bytes(json["free_bytes"]));
  text += fmt::format("\ncontext {}: {}, {} products, chunks of {}: {}\n",
                      json["context"].get<int64_t>(), json["decision"].get<std::string>(),
                      json["precision"].get<std::string>(), json["chunk"].get<int64_t>(),
                      json["reason"].get<std::string>());
  text += fmt::format("largest context that fits: {}\n", json["largest_context"].get<int64_t>());
  return text;
}

int FitVerb::run() {
  cuda::CardFacts facts = card();
  const Model model(open_model_file(model_));
  check_context(model, engine_.context);
  const Plan plan = build_plan(model);
  const FitEnvironment environment = fit_environment();
  cuda::CudaBackendOptions options;
  options.context = engine_.context;
  options.prefill_chunk = engine_.prefill_chunk;
  options.exact = engine_.exact;
  options.prefill_path = engine_.prefill;
  const cuda::PrefillDecision decision = decide_prefill(plan, options, environment, facts);
  RunFacts run;
  run.is_serial = decision.choice.path == PrefillPath::kSerial;
  run.card_is_described = engine_.vram_bytes > 0 || free_bytes_ > 0;
  warn_of_ignored(given, run);
  Json json = {{"model", model_},
               {"context", engine_.context > 0 ? engine_.context : model.desc().context_length},
               {"vram_bytes", facts.total_bytes}};
  json.update(fit_json(decision));
  if (!decision.profile.refusal.empty()) {
    log_warning(decision.profile.refusal);
  }
  if (!decision.choice.line.empty()) {
    log_note(decision.choice.line);
  }
  const std::optional<std::string> missing = kernel_that_is_missing(model, options);
  if (missing) {
    log_warning(*missing + ": this version runs the model on the CPU, whatever fits the card");
  }
  json["missing_kernel"] = missing ? Json(*missing) : Json();
  json["largest_context"] = largest_context(plan, options, environment, facts);
  if (output.is_json()) {
    write_json(json, true);
  } else {
    write_stdout(fit_text(json));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_fit_verb() {
  return std::make_unique<FitVerb>();
}

}  // namespace apr::cli
