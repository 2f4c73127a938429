#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <string_view>
#include <utility>

#include "apr/error.h"
#include "cli/numbers.h"

namespace apr::cli {
namespace {

constexpr int64_t kMaxThreads = 1024, kMaxChunk = 65536;  // the CPU backend's bounds
constexpr int kMaxDevice = 1023;
constexpr int64_t kMaxPositions = std::numeric_limits<int32_t>::max();

// A flag with a whole number from 1 to `max`.
template <class Target>
void add_count(CLI::App& app, const std::string& flag, int64_t max, Target& target,
               const std::string& help) {
  add_value(
      app, flag, "N",
      [flag, max, &target](const std::string& text) {
        target = static_cast<Target>(parse_whole(flag, text, 1, max));
      },
      help);
}

// What a sampling flag does, by the name of its parameter.
const char* sampling_help(std::string_view name) {
  struct Row {
    std::string_view name;
    const char* help;
  };
  static constexpr Row kRows[] = {
      {"temperature", "Randomness of the choice; 0: always the likeliest token"},
      {"top-k", "Choose among the N likeliest tokens; 0: off"},
      {"top-p", "Choose among the likeliest tokens that reach this probability; 1: off"},
      {"min-p", "Drop tokens below this share of the likeliest one's probability; 0: off"},
      {"repeat-penalty", "Divides the logits of recent tokens; 1: off"},
      {"presence-penalty", "Subtracted from the logits of recent tokens; 0: off"},
      {"frequency-penalty", "Subtracted for each time a token occurred; 0: off"},
      {"repeat-last-n", "Tokens the penalties look back on; 0: none, -1: all"},
  };
  for (const Row& row : kRows) {
    if (row.name == name) {
      return row.help;
    }
  }
  APR_CHECK(false, "every sampling parameter has a help text");
}

// Two flags that choose different formats contradict each other.
void set_format(OutputOptions& output, OutputFormat format, bool& is_chosen) {
  if (is_chosen && output.format != format) {
    throw Error(ErrorCode::kUsage,
                "--format, --json and --stream ask for different formats; give one of them");
  }
  output.format = format;
  is_chosen = true;
}

}  // namespace

void add_switch(CLI::App& app, const std::string& name, bool& is_given, const std::string& help) {
  app.add_flag(name, is_given, help);
}

void add_value(CLI::App& app, const std::string& name, const std::string& value_name,
               std::function<void(const std::string&)> set, const std::string& help,
               bool is_required) {
  // CLI11's typed options take an empty string for "not given"; the raw form keeps it.
  app.add_option(
         name,
         [set = std::move(set)](const CLI::results_t& results) {
           set(results.back());
           return true;
         },
         help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name(value_name)
      ->required(is_required);
}

void add_values(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                const std::string& help) {
  app.add_option(
         name,
         [&values](const CLI::results_t& results) {
           values = results;
           return true;
         },
         help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
}

void add_model(CLI::App& app, std::string& model) {
  add_value(
      app, "MODEL", "", [&model](const std::string& text) { model = text; },
      "A GGUF file (any part of a split one), or demo: the small model inside this program "
      "(a file of that name is ./demo)",
      true);
}

void add_output(CLI::App& app, OutputOptions& output, bool has_ndjson) {
  const auto is_chosen = std::make_shared<bool>(false);
  add_value(
      app, "-f,--format", "FORMAT",
      [&output, has_ndjson, is_chosen](const std::string& text) {
        if (text == "text") {
          set_format(output, OutputFormat::kText, *is_chosen);
        } else if (text == "json") {
          set_format(output, OutputFormat::kJson, *is_chosen);
        } else if (text == "ndjson" && has_ndjson) {
          set_format(output, OutputFormat::kNdjson, *is_chosen);
        } else {
          throw Error(ErrorCode::kUsage, fmt::format("--format is \"{}\"; it must be text{} json",
                                                     text, has_ndjson ? ", ndjson or" : " or"));
        }
      },
      has_ndjson ? "text (default), json, or ndjson: one JSON object a line, as it comes"
                 : "text (default) or json");
  app.add_flag_callback(
      "--json", [&output, is_chosen] { set_format(output, OutputFormat::kJson, *is_chosen); },
      "Short for --format json");
  if (has_ndjson) {
    app.add_flag_callback(
        "--stream", [&output, is_chosen] { set_format(output, OutputFormat::kNdjson, *is_chosen); },
        "Short for --format ndjson");
  }
  add_switch(app, "-v,--verbose", output.verbose, "More about what happens, on stderr");
  add_switch(app, "-q,--quiet", output.quiet, "Only errors on stderr");
  app.set_version_flag("--version", std::string("apr ") + APR_VERSION, "Print the version");
}

std::vector<std::string> given_flags(const CLI::App& app) {
  std::vector<std::string> given;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0 && !option->get_lnames().empty()) {
      given.push_back("--" + option->get_lnames().front());
    }
  }
  return given;
}

void add_backend(CLI::App& app, BackendOptions& backend) {
  add_switch(app, "--gpu", backend.gpu, "Run on the GPU or fail; overrides --backend cpu");
  add_switch(app, "--no-gpu,--cpu", backend.no_gpu, "Run on the CPU; never touch a GPU");
  add_value(
      app, "--backend", "NAME",
      [&backend](const std::string& text) {
        if (text != "cuda" && text != "cpu") {
          throw Error(ErrorCode::kUsage,
                      fmt::format("--backend is \"{}\"; it must be cuda or cpu", text));
        }
        backend.backend = text;
      },
      "cuda (as --gpu) or cpu (as --no-gpu)");
  add_devices(app, backend);
}

void add_devices(CLI::App& app, BackendOptions& backend) {
  add_value(
      app, "--device", "N",
      [&backend](const std::string& text) {
        backend.device = static_cast<int>(parse_whole("--device", text, 0, kMaxDevice));
      },
      "The GPU to use, as --list-devices numbers them; default 0");
  app.add_flag_callback(
      "--list-devices", [] { throw ListDevicesCalled(); }, "Print the GPUs and exit");
}

void add_engine(CLI::App& app, EngineOptions& engine) {
  add_count(app, "--threads", kMaxThreads, engine.n_threads,
            "CPU threads; default: the cores this process may use");
  add_lengths(app, engine, "what the run needs, at most the model's");
}

void add_lengths(CLI::App& app, EngineOptions& engine, const char* default_context) {
  add_count(app, "--context", kMaxPositions, engine.context,
            fmt::format("Tokens that fit, prompt and answer; default: {}", default_context));
  add_chunk(app, engine);
}

void add_chunk(CLI::App& app, EngineOptions& engine) {
  add_count(app, "--prefill-chunk", kMaxChunk, engine.prefill_chunk,
            "Prompt tokens computed at a time");
  add_switch(app, "--exact", engine.exact,
             "f32 weights, activations and cache throughout; the CPU always computes so");
}

void add_prefill(CLI::App& app, EngineOptions& engine) {
  add_value(
      app, "--prefill", "PATH",
      [&engine](const std::string& text) {
        engine.prefill = find_prefill_path(text);
        if (!engine.prefill && text != "auto") {
          throw Error(
              ErrorCode::kUsage,
              fmt::format("--prefill is \"{}\"; it must be auto, batched, streamed or serial",
                          text));
        }
      },
      "How a GPU takes the prompt: batched with 16-bit weights kept, streamed (made again for each "
      "chunk), serial (a token at a time); auto (default): the first that fits");
  add_value(
      app, "--vram", "SIZE",
      [&engine](const std::string& text) { engine.vram_bytes = parse_memory("--vram", text); },
      "Decide as on a card of this size, as 24G; default: this one");
}

void add_sampling(CLI::App& app, SamplingParams& sampling) {
  const SamplingParams defaults;
  for (const SamplingRange& range : sampling_ranges()) {
    const std::string flag = std::string("--") + range.name;
    const bool is_real = range.real != nullptr;
    add_value(
        app, flag, is_real ? "X" : "N",
        [flag, range, is_real, &sampling](const std::string& text) {
          if (is_real) {
            sampling.*range.real = parse_real(flag, text, range.min, range.max);
          } else {
            sampling.*range.whole = parse_whole(flag, text, static_cast<int64_t>(range.min),
                                                static_cast<int64_t>(range.max));
          }
        },
        fmt::format("{} (default {})", sampling_help(range.name),
                    is_real ? defaults.*range.real : static_cast<double>(defaults.*range.whole)));
  }
  add_value(
      app, "--seed", "N",
      [&sampling](const std::string& text) { sampling.seed = parse_seed("--seed", text); },
      fmt::format("Start of the random numbers (default {}); the same seed gives the same answer",
                  defaults.seed));
}

}  // namespace apr::cli
