// apr parity: whether the GPU gives the CPU's answer, position by position and op by op.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "apr/error.h"
#include "base/log.h"
#include "cli/ignored_flags.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/parity_report.h"
#include "cli/parity_tensors.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/verb.h"
#include "cuda/dequant_check.h"
#include "generate/logit_rows.h"
#include "generate/parity_sequence.h"

namespace apr::cli {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 20;
constexpr int64_t kMostLogitRows = 512;  // of one step: 310 MB for 152,000 tokens

// About 70 tokens of prose, code and numbers.
constexpr const char* kPrompt =
    "The lighthouse keeper counted 17 ships before noon, wrote the number down and asked: if each "
    "carries 25 barrels, how many barrels is that?\n\n"
    "def total(ships, barrels):\n    return ships * barrels  # 17 * 25 = 425\n\n"
    "\"Four hundred and twenty-five,\" said the cat, and went back to sleep in the sun.";

// "1..64,127,255", ascending and each once. Throws kUsage.
std::vector<int64_t> parse_lengths(const std::string& text) {
  std::set<int64_t> lengths;
  for (std::string_view left = text;;) {
    const size_t comma = left.find(',');
    const std::string part(left.substr(0, comma));
    const size_t dots = part.find("..");
    const int64_t first = parse_whole("--lengths", part.substr(0, dots), 1, kMaxLength);
    const int64_t last = dots == std::string::npos
                             ? first
                             : parse_whole("--lengths", part.substr(dots + 2), first, kMaxLength);
    for (int64_t length = first; length <= last; ++length) {
      lengths.insert(length);
    }
    if (comma == std::string_view::npos) {
      return {lengths.begin(), lengths.end()};
    }
    left.remove_prefix(comma + 1);
  }
}

class ParityVerb : public Verb {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  std::vector<TokenId> prompt_ids(const Model& model) const;
  std::vector<TokenId> sequence(const Model& model) const;
  std::set<int64_t> judged_positions(int64_t n_prompt) const;
  std::unique_ptr<Backend> make_oracle(const Model& model, int64_t context) const;
  void check_options() const;
  void warn_of_ignored(const BackendChoice& choice, const Backend* backend) const;
  template <class Report>
  int finish(const Report& report) const;
  int run_tensors(const BackendChoice& choice, const std::atomic<bool>* cancel) const;
  void compare(ParityReport& report, ParityOracle& oracle, Backend& backend, int64_t n_prompt,
               const ParityWatch& watch) const;

  std::string model_;
  std::optional<std::string> prompt_, ids_path_;
  std::vector<int64_t> lengths_;
  int64_t n_decode_ = 8;
  bool per_op_ = false, tensors_ = false;
  BackendOptions backend_;
  EngineOptions engine_;
};

void ParityVerb::add_options(CLI::App& app) {
  add_model(app, model_);
  add_value(
      app, "-p,--prompt", "TEXT", [this](const std::string& text) { prompt_ = text; },
      "Compare at every position of this text; default: a text of about 70 tokens");
  add_value(
      app, "--ids", "FILE", [this](const std::string& text) { ids_path_ = text; },
      "A JSON array of token ids instead of a text; - reads it from stdin");
  add_value(
      app, "--lengths", "LIST", [this](const std::string& text) { lengths_ = parse_lengths(text); },
      "Prompts of these lengths (1..64,127,255), each from an empty context, compared at their "
      "last "
      "position; the oracle runs once for all");
  add_value(
      app, "-n,--decode", "N",
      [this](const std::string& text) { n_decode_ = parse_whole("--decode", text, 0, 4096); },
      "Tokens fed one by one after each prompt and compared too (default 8)");
  add_switch(app, "--per-op", per_op_,
             "Compare every value of every op, each computed from the GPU's own inputs, and name "
             "the first that differs");
  add_switch(app, "--tensors", tensors_,
             "Instead of logits: decode every tensor, on the GPU as the file has it and as the "
             "kernels want it, and compare each bit with the scalar reference");
  add_engine(app, engine_);
  add_prefill(app, engine_);
  add_backend(app, backend_);
  add_output(app, output, false);
}

std::vector<TokenId> ParityVerb::prompt_ids(const Model& model) const {
  if (ids_path_) {
    return read_ids(*ids_path_, model.desc().vocab_rows);
  }
  const std::vector<TokenId> ids = Tokenizer(model.file()).encode(prompt_.value_or(kPrompt), true);
  if (ids.empty()) {
    throw Error(ErrorCode::kUsage, "the prompt is empty");
  }
  return ids;
}

// The prompt and what is fed after it. A list of lengths without a prompt takes arbitrary ids; a
// prompt shorter than the longest length is repeated.
std::vector<TokenId> ParityVerb::sequence(const Model& model) const {
  const ModelDesc& desc = model.desc();
  if (lengths_.empty()) {
    return prompt_ids(model);
  }
  const int64_t n_ids = lengths_.back() + n_decode_;
  if (!prompt_ && !ids_path_) {
    return arbitrary_ids(std::min(desc.n_tokens, desc.vocab_rows), n_ids);
  }
  const std::vector<TokenId> once = prompt_ids(model);
  std::vector<TokenId> ids;
  for (int64_t idx = 0; idx < n_ids; ++idx) {
    ids.push_back(once[static_cast<size_t>(idx) % once.size()]);
  }
  return ids;
}

std::set<int64_t> ParityVerb::judged_positions(int64_t n_prompt) const {
  std::set<int64_t> positions;
  for (int64_t position = 0; lengths_.empty() && position < n_prompt; ++position) {
    positions.insert(position);
  }
  for (const int64_t length : lengths_) {
    for (int64_t position = length - 1; position < length + n_decode_; ++position) {
      positions.insert(position);
    }
  }
  return positions;
}

// Beside a GPU the fast CPU kernels (weights dequantised by the scalar reference, f32 throughout);
// beside those the plain loops.
std::unique_ptr<Backend> ParityVerb::make_oracle(const Model& model, int64_t context) const {
  CpuBackendOptions options;
  options.n_threads = engine_.n_threads;
  options.context = context;
  options.max_logit_rows = std::min(int64_t{64}, context);
  options.kernels =
      backend_.no_gpu || backend_.backend == "cpu" ? KernelSet::kReference : KernelSet::kFast;
  return make_cpu_backend(model, options);
}

// The prompt, or each length from an empty context. With experts the longest first: what the oracle
// runs again for it often serves the shorter ones, too.
void ParityVerb::compare(ParityReport& report, ParityOracle& oracle, Backend& backend,
                         int64_t n_prompt, const ParityWatch& watch) const {
  std::vector<int64_t> lengths = lengths_;
  if (lengths.empty()) {
    lengths.push_back(n_prompt);
  }
  if (report.route_bound) {
    std::reverse(lengths.begin(), lengths.end());
  }
  for (const int64_t length : lengths) {
    const std::set<int64_t> wanted =
        lengths_.empty() ? judged_positions(n_prompt) : std::set<int64_t>{length - 1};
    report.sequences.push_back(
        compare_sequence(oracle, backend, length, n_decode_, wanted, report.n_tokens, watch));
    if (!report.sequences.back().routes.failure.empty()) {
      break;  // each further one would cost the oracle a pass
    }
  }
  std::sort(report.sequences.begin(), report.sequences.end(),
            [](const auto& a, const auto& b) { return a.n_prompt < b.n_prompt; });
  for (const SequenceParity& sequence : report.sequences) {
    report.positions.insert(report.positions.end(), sequence.positions.begin(),
                            sequence.positions.end());
  }
  report.n_replays = oracle.n_replays();
}

void ParityVerb::check_options() const {
  const bool has_prompt = prompt_ || ids_path_;
  if (prompt_ && ids_path_) {
    throw Error(ErrorCode::kUsage, "-p and --ids are two prompts; give one of them");
  }
  if (tensors_ && (has_prompt || !lengths_.empty() || per_op_ || engine_.exact)) {
    throw Error(ErrorCode::kUsage,
                "--tensors runs no prompt: -p, --ids, --lengths, --per-op and --exact have no "
                "place beside it");
  }
}

// The CPU takes part in every comparison.
void ParityVerb::warn_of_ignored(const BackendChoice& choice, const Backend* backend) const {
  RunFacts facts = run_facts(backend_, choice, backend);
  facts.uses_cpu = true;
  facts.runs_prompt = !tensors_;
  cli::warn_of_ignored(given, facts);
}

// Writes the report; the exit code.
template <class Report>
int ParityVerb::finish(const Report& report) const {
  if (output.is_json()) {
    write_json(parity_json(report), true);
  } else {
    write_stdout(parity_text(report));
  }
  if (!report.passed()) {
    log_error(report.failure());
    return static_cast<int>(ErrorCode::kParityFailed);
  }
  return 0;
}

int ParityVerb::run_tensors(const BackendChoice& choice, const std::atomic<bool>* cancel) const {
  const GgufFile file = open_model_file(model_);
  warn_of_ignored(choice, nullptr);
  cpu::ThreadPool pool(engine_.n_threads > 0 ? engine_.n_threads : cpu::available_cores());
  Progress progress(output.quiet);
  const std::unique_ptr<TensorDecoder> decoder =
      choice.used_gpu() ? cuda::make_tensor_decoder(choice.device, tensor_types(file))
                        : make_cpu_tensor_decoder(pool);
  TensorParityOptions options;
  options.cancel = cancel;
  options.on_tensor = [&](const std::string& name) {
    progress.show(fmt::format("decoding {}", name));
  };
  TensorParityReport report = compare_tensors(file, *decoder, pool, options);
  progress.clear();
  report.model = model_;
  report.choice = choice;
  return finish(report);
}

int ParityVerb::run() {
  check_options();
  const bool of_cpu = backend_.no_gpu || (backend_.backend == "cpu" && !backend_.gpu);
  if (!of_cpu && !backend_.gpu && backend_.backend.empty()) {
    backend_.gpu = true;  // no GPU: an error, never the CPU beside itself
    backend_.gpu_flag = "apr parity without --no-gpu";
  }
  ParityReport report;
  report.choice = choose_backend(backend_);
  ParityWatch watch;
  watch.cancel = catch_interrupts();
  if (tensors_) {
    return run_tensors(report.choice, watch.cancel);
  }
  const Model model(open_model_file(model_));
  const ModelDesc& desc = model.desc();
  report.model = model_;
  report.exact = engine_.exact || of_cpu;
  report.n_tokens = std::min(desc.n_tokens, desc.vocab_rows);
  // tools/synth_gguf.py names its files so.
  report.trained = !desc.name.starts_with("synthetic");
  const std::vector<TokenId> ids = sequence(model);
  const auto n_prompt = static_cast<int64_t>(ids.size()) - (lengths_.empty() ? 0 : n_decode_);
  check_context(model, engine_.context);
  const int64_t needed = n_prompt + n_decode_;
  const int64_t context = engine_.context != 0 ? engine_.context : needed;
  if (needed > desc.context_length) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("the prompt and {} more tokens need {} positions; the model's context "
                            "is {}",
                            n_decode_, needed, desc.context_length));
  }
  if (needed > context) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--context is {}; the prompt and {} more tokens need {} positions",
                            context, n_decode_, needed));
  }
  if (desc.moe.n_experts > 0) {
    report.route_bound = route_bound(report.exact);
  }
  Progress progress(output.quiet);
  watch.on_chunk = [&](int64_t done, int64_t total) { progress.show_prefill(done, total); };
  const int64_t n_rows = lengths_.empty() ? std::min(n_prompt, kMostLogitRows) : 1;
  const std::unique_ptr<Backend> backend =
      make_backend(model, engine_, report.choice, context, n_rows);
  const std::unique_ptr<Backend> oracle = make_oracle(model, context);
  announce(report.choice, *backend);
  warn_of_ignored(report.choice, backend.get());
  report.oracle = oracle->device_name();
  report.prefill_gemm = prefill_gemm_json(*backend);
  if (const std::string refusal = report.per_op_refusal(); per_op_ && !refusal.empty()) {
    throw Error(ErrorCode::kUsage, refusal);
  }

  // Without lengths the oracle's own choices of tokens are what both are fed.
  ParityOracle logits_oracle(*oracle, report.route_bound.value_or(0.0), watch);
  logits_oracle.run(ids, judged_positions(n_prompt), lengths_.empty() ? n_decode_ : 0,
                    report.n_tokens);
  compare(report, logits_oracle, *backend, n_prompt, watch);
  if (per_op_) {
    progress.show("comparing op by op");
    report.ops = compare_ops(*oracle, *backend, std::span(ids).first(static_cast<size_t>(n_prompt)),
                             std::min(n_decode_, int64_t{2}), report.exact, watch.cancel);
  }
  progress.clear();
  report.verdict = judge(report.positions, report.bounds());
  return finish(report);
}

}  // namespace

std::unique_ptr<Verb> make_parity_verb() {
  return std::make_unique<ParityVerb>();
}

}  // namespace apr::cli
