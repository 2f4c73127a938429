#include "cli/gates.h"

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>

#include "apr/cuda.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/kernel_facts.h"
#include "cli/output.h"
#include "cli/receipt.h"
#include "generate/gate_probe.h"

namespace apr::cli {
namespace {

// The oracle, and what runs where a GPU was rejected: weights dequantised by the scalar reference,
// f32 activations and sums. These are the CPU's only kernels but for the plain loops, which take
// minutes for a probe of a model of 8e9 weights and differ in the last bits.
constexpr KernelSet kOracleKernels = KernelSet::kFast;

bool is_skipped() {
  const char* value = std::getenv("SKIP_PARITY_GATE");
  const std::string_view text = value == nullptr ? "" : value;
  if (!text.empty() && text != "0" && text != "1") {
    log_warning(
        fmt::format("SKIP_PARITY_GATE is {}; it must be 0 or 1; 0 is used", in_quotes(text)));
  }
  return text == "1";
}

class Gates {
 public:
  Gates(const GateRequest& request, BackendChoice& choice, const GateBackends& backends)
      : request_(request),
        choice_(choice),
        backends_(backends),
        engine_(request.engine),
        guarded_(guard_probe(request.prompt, request.bos)) {}

  Admitted run();

 private:
  bool has_receipt();
  void validate();
  bool pass_load_gate(Backend& oracle);
  bool pass_guard(Backend& oracle);
  void keep_receipt();
  ProbeResult probe(Backend& oracle, std::span<const TokenId> ids, bool with_decode);
  bool rebuild(EngineOptions engine);
  int64_t batch_rows() const {
    return guard_batch_rows(static_cast<int64_t>(request_.prompt.size()), backend_->max_rows());
  }
  bool is_batched() const { return backend_->max_rows() > 1 && guarded_.size() > 1; }
  const char* path_name() const { return is_batched() ? "batched" : "serial"; }
  bool stop_on_failure(const ProbeResult& result, size_t n_tokens);
  void refuse(ErrorCode code, const std::string& message) const;
  void use_cpu(const std::string& reason);

  const GateRequest& request_;
  BackendChoice& choice_;
  const GateBackends& backends_;
  EngineOptions engine_;          // of the backend in use
  std::vector<TokenId> guarded_;  // what the guard feeds
  std::unique_ptr<Backend> backend_;
  ParityRecord record_;
  int64_t n_rerouted_ = 0;
  std::optional<ReceiptKey> key_;  // none: the model or the program could not be read
};

Admitted Gates::run() {
  backend_ = backends_.make(engine_, choice_);
  request_.progress.clear();
  if (!choice_.used_gpu()) {
    announce(choice_, *backend_);
  } else if (is_skipped()) {
    record_.status = "skipped";
    log_warning(
        "parity: skipped (SKIP_PARITY_GATE=1): nothing compares the GPU's answer with the CPU's");
    announce(choice_, *backend_);
  } else if (has_receipt()) {
    log_note(
        fmt::format("parity: receipt cosine={:.6f} min_cosine={:.6f} positions={} "
                    "threshold={:.2f} basis=cpu",
                    *record_.cosine, *record_.min_cosine, record_.positions, kGateCosine));
    announce(choice_, *backend_);
  } else {
    validate();
  }
  return {std::move(backend_), record_};
}

// Looks for a receipt; says why there is none, that is, why it takes longer now.
bool Gates::has_receipt() {
  std::string reason;
  try {
    key_ = receipt_key(request_.model, request_.name, *backend_, engine_,
                       [this](uint64_t done, uint64_t total) {
                         request_.progress.show(
                             fmt::format("reading the model for its receipt: {:.0f} %",
                                         100.0 * static_cast<double>(done) /
                                             static_cast<double>(std::max<uint64_t>(total, 1))));
                         check_interrupted();
                       });
    const ReceiptLookup lookup = find_receipt(receipt_dir(), *key_, batch_rows());
    reason = request_.revalidate ? "--revalidate" : lookup.reason;
    if (lookup.receipt && !request_.revalidate) {
      record_ = {"PASS", lookup.receipt->cosine, lookup.receipt->min_cosine,
                 lookup.receipt->positions_judged, "receipt"};
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) {
      throw;
    }
    reason = error.what();
  }
  request_.progress.clear();
  if (record_.source != "receipt") {
    log_note(fmt::format("validating once: the GPU's logits beside the CPU's ({})", reason));
  }
  return record_.source == "receipt";
}

void Gates::validate() {
  CpuBackendOptions options;
  options.n_threads = engine_.n_threads;
  options.context = static_cast<int64_t>(guarded_.size()) + 1;
  options.max_logit_rows = options.context;
  options.kernels = kOracleKernels;
  const std::unique_ptr<Backend> oracle = make_cpu_backend(request_.model, options);
  const bool passed = pass_load_gate(*oracle) && pass_guard(*oracle);
  request_.progress.clear();
  if (!passed) {
    return;
  }
  record_.status = "PASS";
  log_note(fmt::format(
      "parity: PASS cosine={:.6f}{} positions={} threshold={:.2f} basis=cpu{}", *record_.cosine,
      record_.min_cosine ? fmt::format(" min_cosine={:.6f}", *record_.min_cosine) : "",
      record_.positions, kGateCosine,
      n_rerouted_ > 0 ? fmt::format(" rerouted={}", n_rerouted_) : ""));
  keep_receipt();
  announce(choice_, *backend_);
}

bool Gates::pass_load_gate(Backend& oracle) {
  const std::vector<TokenId> ids = {gate_token(request_.bos)};
  ProbeResult result = probe(oracle, ids, false);
  // Logits that are not finite are the GPU's answer: as far from the CPU's as can be.
  const auto is_error = [&] {
    return result.failure && result.failure->code() != ErrorCode::kInference;
  };
  const auto measured = [&] { return result.failure ? GatePosition() : result.positions[0]; };
  if (is_error()) {
    return stop_on_failure(result, ids.size());
  }
  GatePosition position = measured();
  LoadVerdict verdict = judge_load(position.cosine, !engine_.exact);
  if (verdict == LoadVerdict::kRetry) {
    const double before = position.cosine;
    EngineOptions exact = engine_;
    exact.exact = true;
    log_warning(
        fmt::format("parity: cosine={:.4f} of the fast kernels is below {:.2f}; the exact "
                    "ones are tried",
                    before, kGateCosine));
    if (!rebuild(exact)) {
      verdict = LoadVerdict::kFail;
    } else {
      result = probe(oracle, ids, false);
      if (is_error()) {
        return stop_on_failure(result, ids.size());
      }
      position = measured();
      verdict = judge_load(position.cosine, false);
      choice_.reason +=
          fmt::format("; exact kernels, as the fast ones reached cosine {:.4f}", before);
    }
  }
  record_.cosine = position.cosine;
  record_.positions = 1;
  if (verdict == LoadVerdict::kPass) {
    return true;
  }
  record_.status = "FAILED";
  record_.source = "fresh";
  const ModelDesc& desc = request_.model.desc();
  const std::string message = fmt::format(
      "PARITY-GATE FAILED: cosine {:.6f} of the logits of token {}, at least {:.2f} is needed; "
      "argmax CPU {} | GPU {}, max abs difference {:.4g}; {} logits, {} layers, dimension {}{}; "
      "apr parity {} shows where; --no-gpu runs on the CPU, SKIP_PARITY_GATE=1 on the GPU unjudged",
      position.cosine, ids[0], kGateCosine, position.oracle_id, position.id,
      position.max_abs_difference, desc.vocab_rows, desc.n_layers, desc.model_dim,
      result.failure ? fmt::format("; {}", result.failure->what()) : "", request_.name);
  refuse(ErrorCode::kParityFailed, message);
  log_detail(message);
  use_cpu(fmt::format("parity FAILED cosine={:.4f} position=1 threshold={:.2f}", position.cosine,
                      kGateCosine));
  log_note(fmt::format("selected: cpu (reason: {})", choice_.reason));
  return false;
}

bool Gates::pass_guard(Backend& oracle) {
  if (guarded_.size() < 2) {
    log_detail("parity: a prompt of one token is not judged");
    return true;
  }
  ProbeResult result = probe(oracle, guarded_, true);
  if (result.failure) {
    return stop_on_failure(result, guarded_.size());
  }
  const char* path = path_name();  // a rebuild that fails leaves no backend
  GuardVerdict verdict = judge_guard(result.positions, result.batches);
  if (may_retry_without_fp8(verdict, is_batched(), backends_.runs_fp8(*backend_))) {
    EngineOptions without = engine_;
    without.fp8_prefill_off = true;
    log_warning(fmt::format("GPU output diverges from CPU with FP8 products at {}; FP16 is tried",
                            describe_rejection(verdict)));
    if (rebuild(without)) {
      result = probe(oracle, guarded_, true);
      if (result.failure) {
        return stop_on_failure(result, guarded_.size());
      }
      verdict = judge_guard(result.positions, result.batches);
      choice_.reason += "; FP16 products, as FP8 fails parity";
    }
  }
  record_.min_cosine = verdict.min_cosine;
  record_.positions += verdict.n_judged;
  record_.source = "fresh";
  if (!result.wrong_route.empty()) {
    log_note("parity: " + result.wrong_route);
  }
  if (!verdict.rejected) {
    return true;
  }
  record_.status = "FAILED";
  const std::string message =
      fmt::format("GPU output diverges from CPU at {}, validated via {} prefill",
                  describe_rejection(verdict), path);
  refuse(ErrorCode::kBackendUnavailable, message);
  log_warning(message + " — falling back to CPU");
  use_cpu(message);
  return false;
}

ProbeResult Gates::probe(Backend& oracle, std::span<const TokenId> ids, bool with_decode) {
  Probe probe;
  probe.ids = ids;
  probe.with_decode = with_decode;
  if (with_decode) {
    probe.batch_rows =
        guard_batches(static_cast<int64_t>(ids.size()),
                      static_cast<int64_t>(request_.prompt.size()), backend_->max_rows());
  }
  probe.exact = engine_.exact;
  probe.on_start = [&](const char* whose) {
    request_.progress.show(fmt::format("validating once: {} token{} on the {}", ids.size(),
                                       ids.size() == 1 ? "" : "s", whose));
  };
  ProbeResult result = run_probe(oracle, *backend_, probe, request_.cancel);
  request_.progress.clear();
  if (result.cancelled) {
    throw Error(ErrorCode::kInterrupted, "interrupted");
  }
  n_rerouted_ += result.n_rerouted;
  return result;
}

// Another backend of the GPU in place of the one that was measured, which goes first: there is
// memory for one. False where it was refused: then there is none at all.
bool Gates::rebuild(EngineOptions engine) {
  backend_.reset();
  BackendChoice forced = choice_;
  forced.requested = "gpu";
  try {
    backend_ = backends_.make(engine, forced);
    engine_ = engine;
    return true;
  } catch (const RefusedBackend& error) {
    log_warning(error.what());
    return false;
  }
}

// The GPU gave no logits. False: the CPU runs.
bool Gates::stop_on_failure(const ProbeResult& result, size_t n_tokens) {
  record_.status = "FAILED";
  const std::string message =
      fmt::format("the GPU failed while {} token{} validated via {} prefill: {}", n_tokens,
                  n_tokens == 1 ? " was" : "s were", n_tokens == 1 ? "serial" : path_name(),
                  result.failure->what());
  refuse(ErrorCode::kBackendUnavailable, message);
  use_cpu(message);
  announce(choice_, *backend_);
  return false;
}

// Ends the run where the GPU was forced.
void Gates::refuse(ErrorCode code, const std::string& message) const {
  if (choice_.requested == "gpu") {
    const bool has_remedy = code == ErrorCode::kParityFailed;
    throw RefusedBackend(code,
                         has_remedy
                             ? message
                             : fmt::format("{}; apr parity {} shows more, --no-gpu runs on the CPU",
                                           message, request_.name),
                         record_.to_json());
  }
}

void Gates::use_cpu(const std::string& reason) {
  backend_.reset();
  choice_.ran = "cpu";
  choice_.gpu_was_tried = true;
  choice_.reason = reason;
  backend_ = make_cpu(request_.model, engine_, request_.context, 1, kOracleKernels);
}

void Gates::keep_receipt() {
  if (!key_ || !record_.min_cosine) {
    return;  // nothing to name it by, or the prompt was too short to be judged
  }
  ReceiptKey key = *key_;
  key.kernels = kernel_facts(*backend_, engine_);
  const std::string failure =
      write_receipt(receipt_dir(), key,
                    {static_cast<int64_t>(std::time(nullptr)), record_.positions, batch_rows(),
                     *record_.cosine, *record_.min_cosine});
  if (!failure.empty()) {
    log_note(fmt::format("no receipt is kept: {}; each run validates", failure));
  }
}

}  // namespace

nlohmann::ordered_json ParityRecord::to_json() const {
  nlohmann::ordered_json json = {{"status", status},         {"cosine", nullptr},
                                 {"min_cosine", nullptr},    {"positions", positions},
                                 {"threshold", kGateCosine}, {"source", source}};
  if (cosine) {
    json["cosine"] = *cosine;
  }
  if (min_cosine) {
    json["min_cosine"] = *min_cosine;
  }
  return json;
}

Admitted admit(const GateRequest& request, BackendChoice& choice, const GateBackends& backends) {
  return Gates(request, choice, backends).run();
}

Admitted admit(const GateRequest& request, BackendChoice& choice) {
  const auto make = [&](const EngineOptions& engine, BackendChoice& chosen) {
    return make_backend(request.model, engine, chosen, request.context, 1);
  };
  const auto runs_fp8 = [](const Backend& backend) {
    const auto facts = cuda::prefill_facts(backend);
    return facts && facts->precision == "fp8";
  };
  return admit(request, choice, {make, runs_fp8});
}

void leave_gpu(const GateRequest& request, BackendChoice& choice, Admitted& admitted,
               bool has_tokens) {
  try {
    throw;
  } catch (const Error& error) {
    const bool is_gpus = choice.used_gpu() && error.code() == ErrorCode::kBackendUnavailable;
    if (is_gpus && choice.requested == "gpu") {
      throw RefusedBackend(error.code(), fmt::format("{}; --no-gpu runs on the CPU", error.what()),
                           admitted.parity.to_json());
    }
    if (!is_gpus || has_tokens) {
      throw;
    }
    admitted.backend.reset();
    choice.ran = "cpu";
    choice.gpu_was_tried = true;
    choice.reason = error.what();
  }
  admitted.backend = make_cpu(request.model, request.engine, request.context, 1);
  announce(choice, *admitted.backend);
}

}  // namespace apr::cli
