// apr run: one prompt, one answer.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <optional>

#include "apr/error.h"
#include "apr/generate.h"
#include "base/log.h"
#include "cli/gates.h"
#include "cli/ignored_flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/load.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/verb.h"
#include "generate/chat_format.h"
#include "generate/stop_matcher.h"

namespace apr::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// APR_QWEN35_SESSION_PREFILL=per-token: a prompt one token at a time. The guard takes its probe the
// way a prompt goes without that.
bool per_token_prefill() {
  const char* value = std::getenv("APR_QWEN35_SESSION_PREFILL");
  if (value == nullptr || std::string_view(value) == "batched") {
    return false;
  }
  if (std::string_view(value) != "per-token") {
    log_warning(
        fmt::format("APR_QWEN35_SESSION_PREFILL is {}; it must be per-token or batched; "
                    "batched is used",
                    in_quotes(value)));
    return false;
  }
  log_warning("APR_QWEN35_SESSION_PREFILL=per-token: the prompt goes one token at a time");
  return true;
}

class RunVerb : public Verb {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  void check_chat_options() const;
  std::string prompt_text() const;
  std::vector<TokenId> prompt_ids(const Model& model, const Tokenizer& tokenizer,
                                  const std::string& text) const;
  bool thinking_for(const ChatFormat& format) const;
  RunFacts facts(const BackendChoice& choice, const Admitted& admitted) const;
  int64_t context_for(const ModelDesc& desc, size_t n_prompt_tokens) const;
  void print_end(const RunReport& report, int64_t context, size_t n_printed_bytes) const;

  std::string model_;
  TextSources sources_;
  bool is_chat_ = false;
  std::optional<std::string> system_;
  std::optional<bool> thinking_;
  GenerateOptions generate_;
  bool revalidate_ = false;
  BackendOptions backend_;
  EngineOptions engine_;
};

void RunVerb::add_options(CLI::App& app) {
  add_model(app, model_);
  add_value(
      app, "PROMPT", "", [this](const std::string& text) { sources_.argument = text; },
      "The prompt; - (or a pipe) reads it from stdin. After -- it may start with dashes");
  add_value(
      app, "-p,--prompt", "TEXT", [this](const std::string& text) { sources_.flag = text; },
      "The prompt");
  add_value(
      app, "-i,--input", "FILE", [this](const std::string& text) { sources_.file = text; },
      "The prompt is what FILE holds; taken byte by byte, but with --chat without the "
      "newline at its end");
  add_value(
      app, "-n,--max-tokens", "N",
      [this](const std::string& text) {
        generate_.max_tokens =
            parse_whole("--max-tokens", text, 0, std::numeric_limits<int32_t>::max());
      },
      "Tokens of the answer at most; default: until it ends or the context is full");
  add_switch(app, "--chat", is_chat_,
             "Put the prompt into the model's chat template as a user's message. Without it the "
             "prompt is a document to continue, special tokens in it count as such");
  add_value(
      app, "--system", "TEXT", [this](const std::string& text) { system_ = text; },
      "The system message of --chat");
  add_value(
      app, "--thinking", "on|off",
      [this](const std::string& text) {
        if (text != "on" && text != "off") {
          throw Error(ErrorCode::kUsage,
                      fmt::format("--thinking is \"{}\"; it must be on or off", text));
        }
        thinking_ = text == "on";
      },
      "on or off (default) for models that can think before they answer");
  add_sampling(app, generate_.sampling);
  add_values(app, "--stop", generate_.stop_strings,
             "End the answer before this text; may be given several times");
  add_engine(app, engine_);
  add_prefill(app, engine_);
  add_backend(app, backend_);
  add_switch(app, "--revalidate", revalidate_,
             "Compare the GPU with the CPU on the prompt also where a receipt says that it passed");
  add_output(app, output, true);
}

// What only a chat template can do is refused without one.
void RunVerb::check_chat_options() const {
  if (is_chat_) {
    return;
  }
  if (system_ || thinking_ == true) {
    throw Error(ErrorCode::kUsage, fmt::format("{} needs --chat: a bare prompt has no place for it",
                                               system_ ? "--system" : "--thinking on"));
  }
  if (thinking_) {
    log_note("--thinking off is ignored: it needs --chat");
  }
}

std::string RunVerb::prompt_text() const {
  std::optional<TextInput> input = read_text(sources_);
  if (!input || (input->text.empty() && input->is_from_stream)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}; example: apr run {} --chat \"What is 12 + 13?\"",
                            input ? "the prompt is empty" : "no prompt", model_));
  }
  if (is_chat_ && input->is_from_stream && input->text.ends_with('\n')) {
    input->text.pop_back();
  }
  return std::move(input->text);
}

bool RunVerb::thinking_for(const ChatFormat& format) const {
  if (thinking_ && !format.knows_thinking()) {
    if (*thinking_) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--thinking on: the chat template of {} has no thinking", model_));
    }
    log_note(
        fmt::format("--thinking off is ignored: the chat template of {} has no thinking", model_));
  }
  return thinking_.value_or(false);
}

std::vector<TokenId> RunVerb::prompt_ids(const Model& model, const Tokenizer& tokenizer,
                                         const std::string& text) const {
  if (!is_chat_) {
    return tokenizer.encode(text, true);
  }
  const ChatFormat format(model.file(), tokenizer);
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (system_) {
    messages.push_back({{"role", "system"}, {"content", *system_}});
  }
  messages.push_back({{"role", "user"}, {"content", text}});
  return format.encode(messages, thinking_for(format));
}

// What the run needs, at most the model's; a longer prompt is refused by generate with both counts.
int64_t RunVerb::context_for(const ModelDesc& desc, size_t n_prompt_tokens) const {
  if (engine_.context != 0) {
    return engine_.context;
  }
  if (!generate_.max_tokens) {
    return desc.context_length;
  }
  constexpr int64_t kRoomToRefuse = 1;  // a prompt needs one position for its answer
  const int64_t needed =
      static_cast<int64_t>(n_prompt_tokens) + std::max(*generate_.max_tokens, kRoomToRefuse);
  return std::min(needed, desc.context_length);
}

// With gates both backends ran, whichever of them answers.
RunFacts RunVerb::facts(const BackendChoice& choice, const Admitted& admitted) const {
  RunFacts facts = run_facts(backend_, choice, admitted.backend.get());
  if (admitted.parity.has_compared()) {
    facts.uses_gpu = facts.uses_cpu = true;
  }
  facts.gates_skipped = admitted.parity.status == "skipped";
  facts.sampling = generate_.sampling;
  return facts;
}

int RunVerb::run() {
  BackendChoice choice = choose_backend(backend_);
  const std::atomic<bool>* cancel = catch_interrupts();
  check_chat_options();
  StopMatcher(generate_.stop_strings);  // refuses bad ones before anything is loaded
  const std::string text = prompt_text();
  RunReport report;
  report.model = model_;
  report.max_tokens = generate_.max_tokens;

  Progress progress(output.quiet);
  progress.show(fmt::format("loading {}", in_quotes(model_)));
  const Clock::time_point start = Clock::now();
  const Model model(open_model_file(model_));
  const Tokenizer tokenizer(model.file());
  const std::vector<TokenId> ids = prompt_ids(model, tokenizer, text);
  const int64_t context = context_for(model.desc(), ids.size());
  check_context(model, context);
  check_prompt_fits(static_cast<int64_t>(ids.size()), context, model.desc());
  generate_.per_token_prefill = per_token_prefill();
  const GateRequest request{model,       model_, engine_, context, ids, tokenizer.bos_id(),
                            revalidate_, cancel, progress};
  Admitted admitted = admit(request, choice);
  report.load_ms = ms_since(start);
  progress.clear();
  warn_of_ignored(given, facts(choice, admitted));

  size_t n_printed_bytes = 0;
  int64_t n_tokens = 0;
  GenerateCallbacks callbacks;
  callbacks.on_prefill = [&](int64_t done, int64_t total) { progress.show_prefill(done, total); };
  callbacks.on_token = [&](TokenId id, const std::string& piece) {
    progress.clear();
    if (output.format == OutputFormat::kText) {
      write_stdout(piece);
      n_printed_bytes += piece.size();
    } else if (output.format == OutputFormat::kNdjson) {
      write_json(token_event(n_tokens, id, piece), false);
    }
    ++n_tokens;
  };
  const auto answer = [&] {
    progress.show_prefill(0, static_cast<int64_t>(ids.size()));
    report.result = generate(*admitted.backend, tokenizer, ids, generate_, callbacks, cancel);
  };
  try {
    answer();
  } catch (const Error&) {
    progress.clear();
    leave_gpu(request, choice, admitted, n_tokens > 0);
    answer();
  }
  report.total_ms = ms_since(start);
  progress.clear();
  report.backend = choice;
  report.prefill = prefill_json(*admitted.backend);
  report.prefill_gemm = prefill_gemm_json(*admitted.backend);
  report.parity = admitted.parity.to_json();
  print_end(report, context, n_printed_bytes);
  return report.result.finish_reason == FinishReason::kCancelled
             ? static_cast<int>(ErrorCode::kInterrupted)
             : 0;
}

void RunVerb::print_end(const RunReport& report, int64_t context, size_t n_printed_bytes) const {
  const GenerateResult& result = report.result;
  switch (output.format) {
    case OutputFormat::kText:
      // A cancelled answer may end with text that was held back.
      write_stdout(std::string_view(result.text).substr(n_printed_bytes));
      if (stdout_is_terminal() && !result.text.ends_with('\n')) {
        write_stdout("\n");
      }
      break;
    case OutputFormat::kJson:
      write_json(run_json(report), true);
      break;
    case OutputFormat::kNdjson:
      write_json(final_event(report), false);
      break;
  }
  switch (result.finish_reason) {
    case FinishReason::kStop:
      break;
    case FinishReason::kLength:
      log_note(fmt::format("cut at {} tokens (-n)", result.tokens.size()));
      break;
    case FinishReason::kContext:
      log_note(fmt::format("cut after {} tokens: the context of {} tokens is full (--context)",
                           result.tokens.size(), context));
      break;
    case FinishReason::kCancelled:
      log_note(fmt::format("interrupted after {} tokens", result.tokens.size()));
      break;
  }
  log_detail(
      fmt::format("load {:.1f} ms; prompt {} tokens in {:.1f} ms; answer {} tokens, {:.1f} "
                  "tokens/s",
                  report.load_ms, result.prompt_tokens, result.prefill_ms, result.tokens.size(),
                  result.tok_per_sec()));
}

}  // namespace

std::unique_ptr<Verb> make_run_verb() {
  return std::make_unique<RunVerb>();
}

}  // namespace apr::cli
