#include "cli/ignored_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "apr/cuda.h"
#include "apr/fit.h"
#include "base/log.h"

namespace apr::cli {
namespace {

struct IgnoredRow {
  std::string_view names;  // between spaces
  bool (*is_ignored)(const RunFacts& facts);
  const char* why;
};

bool has_no_penalty(const SamplingParams& sampling) {
  return sampling.repeat_penalty == 1.0 && sampling.presence_penalty == 0.0 &&
         sampling.frequency_penalty == 0.0;
}

// Of two rows that apply the first one counts.
constexpr IgnoredRow kIgnoredRows[] = {
    {" --decode --context --prefill --prefill-chunk --vram BATCHED_PREFILL FP8_PREFILL "
     "APR_QWEN35_PREFILL_GEMM APR_QWEN35_PREFILL_ATTENTION ",
     [](const RunFacts& facts) { return !facts.runs_prompt; }, "--tensors runs no prompt"},
    {" --device ", [](const RunFacts& facts) { return facts.is_plan; }, "a plan needs no GPU"},
    {" --gpu --no-gpu --backend --prefill-chunk --exact ",
     [](const RunFacts& facts) { return facts.is_plan && !facts.is_lowered; },
     "only --lowered depends on it"},
    {" --exact ",
     [](const RunFacts& facts) { return facts.is_plan && facts.is_lowered && !facts.uses_gpu; },
     "only a GPU's plan depends on it"},
    {" --device ", [](const RunFacts& facts) { return facts.card_is_described; },
     "--vram or --free says which card is meant"},
    {" --device ", [](const RunFacts& facts) { return !facts.uses_gpu && facts.cpu_was_asked; },
     "the CPU runs"},
    {" --prefill --vram BATCHED_PREFILL FP8_PREFILL APR_QWEN35_PREFILL_GEMM "
     "APR_QWEN35_PREFILL_ATTENTION ",
     [](const RunFacts& facts) {
       return !facts.uses_gpu && !facts.gpu_was_tried && !facts.is_plan;
     },
     "the CPU runs"},
    {" --revalidate ", [](const RunFacts& facts) { return !facts.uses_gpu; }, "the CPU runs"},
    {" --threads ", [](const RunFacts& facts) { return !facts.uses_cpu; }, "the GPU runs"},
    {" --backend ", [](const RunFacts& facts) { return facts.gpu_overrides_backend; },
     "--gpu overrides it"},
    {" --revalidate ", [](const RunFacts& facts) { return facts.gates_skipped; },
     "SKIP_PARITY_GATE=1 compares nothing"},
    {" --prefill-chunk ", [](const RunFacts& facts) { return facts.is_serial; },
     "the prompt goes one token at a time"},
    {" --top-k --top-p --min-p --seed ",
     [](const RunFacts& facts) { return facts.sampling.temperature == 0.0; },
     "at temperature 0 the likeliest token is always taken"},
    {" --temperature --top-p --min-p --seed ",
     [](const RunFacts& facts) {
       return facts.sampling.temperature != 0.0 && facts.sampling.top_k == 1;
     },
     "--top-k 1 leaves one token to choose"},
    {" --repeat-penalty --presence-penalty --frequency-penalty ",
     [](const RunFacts& facts) { return facts.sampling.repeat_last_n == 0; },
     "--repeat-last-n 0 looks back on no token"},
    {" --repeat-last-n ", [](const RunFacts& facts) { return has_no_penalty(facts.sampling); },
     "no penalty is set"},
};

}  // namespace

RunFacts run_facts(const BackendOptions& options, const BackendChoice& choice,
                   const Backend* backend) {
  RunFacts facts;
  facts.uses_gpu = choice.used_gpu();
  facts.uses_cpu = !choice.used_gpu();
  facts.cpu_was_asked = choice.requested == "cpu";
  facts.gpu_was_tried = choice.gpu_was_tried;
  facts.gpu_overrides_backend = options.gpu && options.backend == "cpu";
  const auto prefill = backend != nullptr ? cuda::prefill_facts(*backend) : std::nullopt;
  facts.is_serial = prefill && prefill->path == prefill_path_name(PrefillPath::kSerial);
  return facts;
}

std::string ignored_flags(std::span<const std::string> given, const RunFacts& facts) {
  std::string all;
  std::vector<std::string> left(given.begin(), given.end());
  for (const IgnoredRow& row : kIgnoredRows) {
    if (!row.is_ignored(facts)) {
      continue;
    }
    std::string names;
    std::erase_if(left, [&](const std::string& name) {
      const bool is_named = row.names.find(fmt::format(" {} ", name)) != std::string_view::npos;
      if (is_named) {
        names += (names.empty() ? "" : ", ") + name;
      }
      return is_named;
    });
    if (!names.empty()) {
      all += fmt::format("{}{} ({})", all.empty() ? "" : "; ", names, row.why);
    }
  }
  return all;
}

std::vector<std::string> ignorable_flags() {
  std::vector<std::string> all;
  for (const IgnoredRow& row : kIgnoredRows) {
    std::istringstream names{std::string(row.names)};
    for (std::string name; names >> name;) {
      all.push_back(name);
    }
  }
  return all;
}

void warn_of_ignored(std::vector<std::string> given, const RunFacts& facts) {
  const FitEnvironment environment = fit_environment();
  const std::string fp8 = environment.fp8_prefill.value_or("");
  if (environment.batched_prefill) {
    given.push_back("BATCHED_PREFILL");
  }
  if (!fp8.empty() && fp8 != "0") {
    given.push_back("FP8_PREFILL");
  }
  for (const char* name : {"APR_QWEN35_PREFILL_GEMM", "APR_QWEN35_PREFILL_ATTENTION"}) {
    if (std::getenv(name) != nullptr) {
      given.emplace_back(name);
    }
  }
  if (const std::string ignored = ignored_flags(given, facts); !ignored.empty()) {
    log_warning("without effect: " + ignored);
  }
}

}  // namespace apr::cli
