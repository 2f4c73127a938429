// apr bench: how fast a model runs here, with the flags and fields of llama.cpp's llama-bench.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>

#include "apr/cuda.h"
#include "apr/error.h"
#include "apr/generate.h"
#include "cli/bench_report.h"
#include "cli/file_type.h"
#include "cli/ignored_flags.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "cpu/measure.h"
#include "cpu/thread_pool.h"
#include "generate/logit_rows.h"
#include "plan/cost.h"

namespace apr::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxTokens = int64_t{1} << 22, kMaxReps = 10000;

// "512" or "128,512,2048". Throws kUsage.
std::vector<int64_t> parse_list(const std::string& flag, const std::string& text) {
  std::vector<int64_t> values;
  for (std::string_view left = text;;) {
    const size_t comma = left.find(',');
    values.push_back(parse_whole(flag, std::string(left.substr(0, comma)), 0, kMaxTokens));
    if (comma == std::string_view::npos) {
      return values;
    }
    left.remove_prefix(comma + 1);
  }
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// Sizes over the whole file.
BenchModel describe(const std::string& path, const Model& model) {
  BenchModel bench;
  bench.path = path;
  for (const GgufTensor& tensor : model.file().tensors()) {
    uint64_t n_elems = 1;
    for (const int64_t axis : tensor.shape) {
      n_elems *= static_cast<uint64_t>(axis);
    }
    bench.n_params += n_elems;
    bench.size_bytes += tensor.data.size();
  }
  const double billions = static_cast<double>(bench.n_params) / 1e9;
  bench.type = fmt::format(
      "{} {} {}", model.desc().arch,
      billions >= 1.0 ? fmt::format("{:.1f}B", billions) : fmt::format("{:.0f}M", billions * 1e3),
      weight_types(model.file()));
  return bench;
}

class BenchVerb : public Verb {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  std::vector<BenchTest> tests() const;
  int64_t context_for(const std::vector<BenchTest>& tests, const ModelDesc& desc) const;
  MachineSpeed measure(const BackendChoice& choice) const;
  std::vector<TokenId> some_ids(const ModelDesc& desc, int64_t n_ids) const;
  void feed(Backend& backend, std::span<const TokenId> ids, bool wants_logits);
  int64_t run_prompt(Backend& backend, const BenchTest& test);
  int64_t run_decode(Backend& backend, const Tokenizer& tokenizer, const BenchTest& test);
  BenchResult run_test(Backend& backend, const Tokenizer& tokenizer, const Plan& plan,
                       const BenchTest& test, Progress& progress);

  std::string model_;
  std::vector<int64_t> n_prompt_{512}, n_gen_{128}, n_depth_{0};
  int64_t n_reps_ = 5;
  BackendOptions backend_;
  EngineOptions engine_;
  const std::atomic<bool>* cancel_ = nullptr;
  bool used_gpu_ = false;
};

void BenchVerb::add_options(CLI::App& app) {
  add_model(app, model_);
  const auto add_list = [&app](const char* names, const char* flag, std::vector<int64_t>& target,
                               const char* help) {
    add_value(
        app, names, "N,...",
        [flag, &target](const std::string& text) { target = parse_list(flag, text); }, help);
  };
  add_list("-p,--n-prompt", "--n-prompt", n_prompt_,
           "Lengths of prompts, each a test (default 512); 0: none");
  add_list("-n,--n-gen", "--n-gen", n_gen_,
           "Numbers of tokens generated one by one, each a test (default 128); 0: none");
  add_list("-d,--n-depth", "--n-depth", n_depth_,
           "Tokens in the context before what is timed; every test at every depth (default 0)");
  add_value(
      app, "-r,--repetitions", "N",
      [this](const std::string& text) {
        n_reps_ = parse_whole("--repetitions", text, 1, kMaxReps);
      },
      "Times each test is repeated, after one run to warm up (default 5)");
  add_engine(app, engine_);
  add_prefill(app, engine_);
  add_backend(app, backend_);
  add_output(app, output, true);
}

std::vector<BenchTest> BenchVerb::tests() const {
  std::vector<BenchTest> tests = bench_tests(n_prompt_, n_gen_, n_depth_);
  if (tests.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("nothing to measure; example: apr bench {} -p 512 -n 128", model_));
  }
  return tests;
}

// A run of decode starts from one token at least, and chooses one token more than it feeds.
int64_t BenchVerb::context_for(const std::vector<BenchTest>& tests, const ModelDesc& desc) const {
  int64_t needed = 0;
  for (const BenchTest& test : tests) {
    const int64_t before = test.n_gen > 0 ? std::max(test.n_depth, int64_t{1}) + 1 : test.n_depth;
    needed = std::max(needed, before + test.n_tokens());
  }
  const int64_t context = engine_.context != 0 ? engine_.context : needed;
  if (needed > std::min(context, desc.context_length)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the longest test needs {} positions and the context has {} (the "
                            "model's is {}); lower -p, -n or -d",
                            needed, std::min(context, desc.context_length), desc.context_length));
  }
  return context;
}

MachineSpeed BenchVerb::measure(const BackendChoice& choice) const {
  if (choice.used_gpu()) {
    const cuda::DeviceSpeed speed = cuda::measure_speed(choice.device);
    return {speed.bytes_per_s, speed.flops_per_s,
            fmt::format("measured in this run: a copy on the device moves {:.0f} GB/s (read and "
                        "written), cuBLAS f16 products reach {:.1f} TFLOP/s",
                        speed.bytes_per_s / 1e9, speed.flops_per_s / 1e12)};
  }
  const int n_threads = engine_.n_threads > 0 ? engine_.n_threads : cpu::available_cores();
  const double bytes_per_s = cpu::measure_read_bytes_per_s(n_threads);
  return {bytes_per_s, 0.0,
          fmt::format("measured in this run: {} threads read {:.1f} GB/s from memory", n_threads,
                      bytes_per_s / 1e9)};
}

std::vector<TokenId> BenchVerb::some_ids(const ModelDesc& desc, int64_t n_ids) const {
  return arbitrary_ids(std::min(desc.n_tokens, desc.vocab_rows), n_ids);
}

// Runs `ids` in chunks, with the logits of the last one where they are wanted.
void BenchVerb::feed(Backend& backend, std::span<const TokenId> ids, bool wants_logits) {
  std::vector<float> logits(wants_logits ? static_cast<size_t>(backend.desc().vocab_rows) : 0);
  while (!ids.empty()) {
    const size_t n_rows = std::min(ids.size(), static_cast<size_t>(backend.max_rows()));
    const bool is_last = wants_logits && n_rows == ids.size();
    const std::vector<int64_t> rows(is_last ? 1 : 0, static_cast<int64_t>(n_rows) - 1);
    if (!backend.forward(ids.first(n_rows), rows,
                         is_last ? std::span<float>(logits) : std::span<float>(), cancel_)) {
      check_interrupted();
    }
    ids = ids.subspan(n_rows);
  }
}

int64_t BenchVerb::run_prompt(Backend& backend, const BenchTest& test) {
  const std::vector<TokenId> ids = some_ids(backend.desc(), test.n_depth + test.n_prompt);
  const auto n_depth = static_cast<size_t>(test.n_depth);
  backend.reset();
  feed(backend, std::span(ids).first(n_depth), false);
  const Clock::time_point start = Clock::now();
  feed(backend, std::span(ids).subspan(n_depth), true);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

// As apr run does it: one token more is chosen than fed, the first from the untimed prompt.
int64_t BenchVerb::run_decode(Backend& backend, const Tokenizer& tokenizer, const BenchTest& test) {
  const std::vector<TokenId> ids = some_ids(backend.desc(), std::max(test.n_depth, int64_t{1}));
  GenerateOptions options;
  options.max_tokens = test.n_gen + 1;
  options.ignore_eos = true;
  const GenerateResult result = generate(backend, tokenizer, ids, options, {}, cancel_);
  check_interrupted();
  APR_CHECK(static_cast<int64_t>(result.tokens.size()) == test.n_gen + 1, "a run to its end");
  return static_cast<int64_t>(result.decode_ms * 1e6);
}

BenchResult BenchVerb::run_test(Backend& backend, const Tokenizer& tokenizer, const Plan& plan,
                                const BenchTest& test, Progress& progress) {
  constexpr int64_t kMostWarmUpTokens = 16;  // of decode: its graph is made at the first
  BenchResult result;
  result.test = test;
  result.test_time = utc_now();
  const int64_t kv_elem_bytes = used_gpu_ && !engine_.exact ? 2 : 4;
  BenchTest warm_up = test;
  warm_up.n_gen = std::min(test.n_gen, kMostWarmUpTokens);
  for (int64_t rep = -1; rep < n_reps_; ++rep) {
    progress.show(fmt::format("{}, {} of {}", test.name(), rep + 1, n_reps_));
    const BenchTest& now = rep < 0 ? warm_up : test;
    const int64_t ns =
        test.n_prompt > 0 ? run_prompt(backend, now) : run_decode(backend, tokenizer, now);
    if (rep >= 0) {
      result.samples_ns.push_back(std::max(ns, int64_t{1}));
    }
  }
  if (test.n_prompt > 0) {
    for (int64_t done = 0; done < test.n_prompt; done += backend.max_rows()) {
      const int64_t n_rows = std::min(backend.max_rows(), test.n_prompt - done);
      const int64_t n_logit_rows = done + n_rows == test.n_prompt ? 1 : 0;
      const StepCost cost =
          step_cost(plan, n_rows, test.n_depth + done, n_logit_rows, kv_elem_bytes);
      result.bytes += cost.weight_bytes + cost.state_bytes;
      result.flops += cost.flops;
    }
  } else {
    for (int64_t step = 0; step < test.n_gen; ++step) {
      const StepCost cost =
          step_cost(plan, 1, std::max(test.n_depth, int64_t{1}) + step, 1, kv_elem_bytes);
      result.bytes += cost.weight_bytes + cost.state_bytes;
      result.flops += cost.flops;
    }
  }
  return result;
}

int BenchVerb::run() {
  BackendChoice choice = choose_backend(backend_);
  cancel_ = catch_interrupts();
  const std::vector<BenchTest> all = tests();
  const Model model(open_model_file(model_));
  const Tokenizer tokenizer(model.file());
  const int64_t context = context_for(all, model.desc());
  Progress progress(output.quiet);
  progress.show("measuring the machine");
  BenchSetup setup;
  MachineSpeed speed = measure(choice);
  progress.show(fmt::format("loading {}", in_quotes(model_)));
  const std::unique_ptr<Backend> backend = make_backend(model, engine_, choice, context, 1);
  progress.clear();
  announce(choice, *backend);
  warn_of_ignored(given, run_facts(backend_, choice, backend.get()));
  if (used_gpu_ = choice.used_gpu(); speed.flops_per_s > 0.0 && !used_gpu_) {
    speed = measure(choice);  // the GPU could not run the model
  }
  setup.model = describe(model_, model);
  setup.choice = choice;
  setup.prefill = prefill_json(*backend);
  setup.prefill_gemm = prefill_gemm_json(*backend);
  setup.device_name = backend->device_name();
  setup.cpu_name = cpu_name();
  setup.chunk = backend->max_rows();
  setup.n_threads = engine_.n_threads > 0 ? engine_.n_threads : cpu::available_cores();
  setup.exact = engine_.exact;
  setup.speed = speed;
  const Plan plan = build_plan(model);
  std::vector<BenchResult> results;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BenchTest& test : all) {
    results.push_back(run_test(*backend, tokenizer, plan, test, progress));
    progress.clear();
    if (output.format == OutputFormat::kNdjson) {
      write_json(bench_json(setup, results.back()), false);
    } else {
      json.push_back(bench_json(setup, results.back()));
    }
  }
  if (output.format == OutputFormat::kJson) {
    write_json(json, true);
  } else if (output.format == OutputFormat::kText) {
    write_stdout(bench_table(setup, results));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_bench_verb() {
  return std::make_unique<BenchVerb>();
}

}  // namespace apr::cli
