// Flags that several verbs share, each group declared by one function.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apr/fit.h"
#include "apr/generate.h"

// CLI11 costs seconds in every file that includes it: options.cpp and command_line.cpp do.
namespace CLI {
class App;
}

namespace apr::cli {

enum class OutputFormat { kText, kJson, kNdjson };

struct OutputOptions {
  OutputFormat format = OutputFormat::kText;
  bool verbose = false, quiet = false;
  bool is_json() const { return format != OutputFormat::kText; }
};

struct BackendOptions {
  bool gpu = false, no_gpu = false;
  std::string backend;             // "cuda", "cpu"; empty: not given
  std::optional<int> device;       // --device
  const char* gpu_flag = "--gpu";  // what asks for the GPU where `gpu` is set
};

struct EngineOptions {
  int n_threads = 0;          // 0: all cores this process may use
  int64_t context = 0;        // positions; 0: what the run needs
  int64_t prefill_chunk = 0;  // tokens; 0: the backend's choice
  bool exact = false;
  std::optional<PrefillPath> prefill;  // none: auto
  uint64_t vram_bytes = 0;             // --vram; 0: the card's
  bool fp8_prefill_off = false;        // no flag: a guard refused what FP8 gave
};

// A flag without a value.
void add_switch(CLI::App& app, const std::string& name, bool& is_given, const std::string& help);

// A flag with one value, handed to `set` as typed; of several the last counts. `value_name` stands
// for the value in --help.
void add_value(CLI::App& app, const std::string& name, const std::string& value_name,
               std::function<void(const std::string&)> set, const std::string& help,
               bool is_required = false);

// A flag that may be repeated; all values are kept as typed.
void add_values(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                const std::string& help);

// MODEL, the first argument of most verbs.
void add_model(CLI::App& app, std::string& model);

// --format (with ndjson where `has_ndjson`, then also --stream), --json, --verbose, --quiet,
// --version.
void add_output(CLI::App& app, OutputOptions& output, bool has_ndjson);

// --gpu, --no-gpu, --cpu, --backend, --device, --list-devices.
void add_backend(CLI::App& app, BackendOptions& backend);

// --device and --list-devices, for verbs that only look.
void add_devices(CLI::App& app, BackendOptions& backend);

// The flags on the command line, each once, by its first long name: "--max-tokens".
std::vector<std::string> given_flags(const CLI::App& app);

// Thrown out of the parsing of flags by --list-devices, which needs no MODEL.
struct ListDevicesCalled {};

// --threads and what add_lengths() has.
void add_engine(CLI::App& app, EngineOptions& engine);

// --context, whose default the help describes so, and what add_chunk() has.
void add_lengths(CLI::App& app, EngineOptions& engine, const char* default_context);

// --prefill-chunk, --exact.
void add_chunk(CLI::App& app, EngineOptions& engine);

// --prefill and --vram: what a GPU's prefill is decided by.
void add_prefill(CLI::App& app, EngineOptions& engine);

// One flag for each sampling parameter, ranges from sampling_ranges(), and --seed.
void add_sampling(CLI::App& app, SamplingParams& sampling);

}  // namespace apr::cli
