#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <limits>

#include "apr/error.h"
#include "cli/command_line.h"
#include "cli/ignored_flags.h"
#include "cli/load.h"
#include "cli/numbers.h"
#include "cli/verb.h"

namespace apr::cli {
namespace {

// The message of the usage error that `action` throws; empty where it throws none.
template <typename Action>
std::string usage_error(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return {};
}

TEST(Numbers, WholeNumbersAreTakenWholeOrNotAtAll) {
  EXPECT_EQ(parse_whole("-n", "0", 0, 9), 0);
  EXPECT_EQ(parse_whole("-n", "-1", -1, 9), -1);
  EXPECT_EQ(parse_whole("-n", "9223372036854775807", 0, std::numeric_limits<int64_t>::max()),
            std::numeric_limits<int64_t>::max());
  for (const char* bad : {"", " ", "abc", "1x", "1.0", "0x1", "+1", " 1", "1 ", "-1", "10", "1e1",
                          "nan", "inf", "99999999999999999999"}) {
    EXPECT_EQ(usage_error([&] { parse_whole("--top-k", bad, 0, 9); }),
              std::string("--top-k is \"") + bad + "\"; it must be a whole number from 0 to 9");
  }
}

TEST(Numbers, RealsAreFiniteAndInRange) {
  EXPECT_EQ(parse_real("-t", "0", 0, 1), 0.0);
  EXPECT_EQ(parse_real("-t", "1e-9", 0, 1), 1e-9);
  EXPECT_EQ(parse_real("-t", ".5", 0, 1), 0.5);
  EXPECT_EQ(parse_real("-t", "1", 0, 1), 1.0);
  for (const char* bad :
       {"", "nan", "-nan", "inf", "-inf", "1e999", "-1", "1.5", "1,5", "abc", "0.5x", "1e-999"}) {
    EXPECT_EQ(usage_error([&] { parse_real("--top-p", bad, 0, 1); }),
              std::string("--top-p is \"") + bad + "\"; it must be a number from 0 to 1");
  }
}

TEST(Numbers, SeedsAreAnySixtyFourBits) {
  EXPECT_EQ(parse_seed("--seed", "18446744073709551615"), ~uint64_t{0});
  for (const char* bad : {"", "-1", "18446744073709551616", "1.5"}) {
    EXPECT_NE(usage_error([&] { parse_seed("--seed", bad); }), "") << bad;
  }
}

TEST(Numbers, MemoryIsBytesOrWholeUnits) {
  EXPECT_EQ(parse_memory("--vram", "24G"), uint64_t{24} << 30);
  EXPECT_EQ(parse_memory("--vram", "512M"), uint64_t{512} << 20);
  EXPECT_EQ(parse_memory("--free", "24431820800"), uint64_t{24'431'820'800});
  EXPECT_EQ(parse_memory("--free", "17179869183G"), uint64_t{17'179'869'183} << 30);
  for (const char* bad : {"", "G", "0", "0G", "24", "1048575", "-1G", "1.5G", "24 G", "24g", "24GB",
                          "17179869184G", "18446744073709551616", "nan"}) {
    EXPECT_EQ(usage_error([&] { parse_memory("--vram", bad); }),
              std::string("--vram is \"") + bad +
                  "\"; it must be 1 MiB or more: bytes, or GiB or MiB as 24G and 512M");
  }
}

struct Parsed {
  std::string model, prompt, flag_prompt;
  std::vector<std::string> stops;
  bool chat = false;
};

// What a small verb makes of `args`.
Parsed parse(const std::vector<std::string>& args) {
  Parsed parsed;
  CLI::App app;
  add_model(app, parsed.model);
  add_value(
      app, "PROMPT", "", [&](const std::string& text) { parsed.prompt = text; }, "");
  add_value(
      app, "-p,--prompt", "TEXT", [&](const std::string& text) { parsed.flag_prompt = text; }, "");
  add_values(app, "--stop", parsed.stops, "");
  app.add_flag("--chat", parsed.chat);
  std::vector<std::string> reversed = separate_values(app, args);
  std::reverse(reversed.begin(), reversed.end());
  app.parse(std::move(reversed));
  return parsed;
}

TEST(CommandLine, ValuesAreTakenAsTheyAre) {
  for (const std::string text : {"--chat", "-p", "--", "-", "", "[a,b]", "a=b", "--stop=x", "++",
                                 "{}", "\"q\"", "a b", "run", "-1"}) {
    EXPECT_EQ(parse({"m", "-p", text}).flag_prompt, text);
    EXPECT_EQ(parse({"m", "--prompt", text}).flag_prompt, text);
    EXPECT_EQ(parse({"m", "--prompt=" + text}).flag_prompt, text);
    EXPECT_EQ(parse({"m", "-p=" + text}).flag_prompt, text);
    EXPECT_EQ(parse({"--prompt=" + text, "m", "--chat"}).flag_prompt, text);
    EXPECT_EQ(parse({"m", "--stop", text, "--stop", "b"}).stops,
              (std::vector<std::string>{text, "b"}));
    EXPECT_FALSE(parse({"m", "-p", text}).chat);
  }
}

TEST(CommandLine, ArgumentsAfterTwoDashesAreTakenAsTheyAre) {
  for (const std::string text : {"--chat", "-p", "--prompt=x", "-", "run", "--weird"}) {
    EXPECT_EQ(parse({"m", "--", text}).prompt, text);
  }
  EXPECT_EQ(parse({"m", "-"}).prompt, "-");
  EXPECT_EQ(parse({"m", "[a,b]"}).prompt, "[a,b]");
  EXPECT_EQ(parse({"m", ""}).prompt, "");
}

TEST(CommandLine, AStopStringDoesNotEatThePrompt) {
  const Parsed parsed = parse({"m", "--stop", "a", "the prompt", "--chat"});
  EXPECT_EQ(parsed.prompt, "the prompt");
  EXPECT_TRUE(parsed.chat);
}

TEST(CommandLine, TheLastOfSeveralValuesCounts) {
  EXPECT_EQ(parse({"m", "-p", "a", "--prompt", "b"}).flag_prompt, "b");
}

TEST(CommandLine, EveryVerbHasExamplesThatNameIt) {
  for (const VerbRow& row : verb_table()) {
    EXPECT_NE(std::string(row.examples).find(std::string("apr ") + row.name), std::string::npos);
    EXPECT_NE(row.make(), nullptr);
  }
}

// The flags of `args` that a verb called `name` says it was given.
std::vector<std::string> given(const std::string& name, const std::vector<std::string>& args) {
  for (const VerbRow& row : verb_table()) {
    if (row.name == name) {
      const std::unique_ptr<Verb> verb = row.make();
      CLI::App app;
      verb->add_options(app);
      std::vector<std::string> reversed = separate_values(app, args);
      std::reverse(reversed.begin(), reversed.end());
      app.parse(std::move(reversed));
      return given_flags(app);
    }
  }
  return {};
}

TEST(IgnoredFlags, OnlyWhatIsOnTheCommandLineIsGivenByItsLongName) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(given("run", {"m", "-p", "x"}), Names{"--prompt"});
  EXPECT_EQ(
      given("run", {"m", "--cpu", "--top-k", "1", "--top-k", "2", "--seed=3", "--", "--device"}),
      (Names{"--top-k", "--seed", "--no-gpu"}));
  EXPECT_EQ(given("parity", {"m", "-n", "3"}), Names{"--decode"});
}

TEST(IgnoredFlags, NothingIsSaidOfFlagsWithAnEffect) {
  const std::vector<std::string> all = {"--device",  "--prefill", "--vram",          "--revalidate",
                                        "--threads", "--backend", "--prefill-chunk", "--exact",
                                        "--decode",  "--context", "--gpu",           "--no-gpu"};
  EXPECT_EQ(ignored_flags(all, RunFacts()), "");
  RunFacts sampling;
  sampling.sampling.temperature = 0.5;
  sampling.sampling.presence_penalty = -1.0;
  const std::vector<std::string> of_sampling = {"--temperature",
                                                "--top-k",
                                                "--top-p",
                                                "--min-p",
                                                "--seed",
                                                "--repeat-penalty",
                                                "--presence-penalty",
                                                "--frequency-penalty",
                                                "--repeat-last-n"};
  EXPECT_EQ(ignored_flags(of_sampling, sampling), "");
  sampling.sampling.temperature = 0.0;  // penalties move the likeliest token, too
  EXPECT_EQ(ignored_flags(of_sampling, sampling),
            "--top-k, --top-p, --min-p, --seed (at temperature 0 the likeliest token is always "
            "taken)");
}

TEST(IgnoredFlags, AFlagIsNamedOnceWithTheFirstReasonAndOnlyWhereGiven) {
  RunFacts facts;
  facts.uses_gpu = false;
  facts.gates_skipped = true;
  EXPECT_EQ(ignored_flags(std::vector<std::string>{"--seed", "--revalidate", "--threads"}, facts),
            "--revalidate (the CPU runs); --seed (at temperature 0 the likeliest token is always "
            "taken)");
  EXPECT_EQ(ignored_flags({}, facts), "");
}

// What led to the CPU had an effect.
TEST(IgnoredFlags, FlagsOfAGpuThatWasTriedAreNotNamed) {
  const std::vector<std::string> given = {"--device", "--prefill", "--vram", "--revalidate",
                                          "APR_QWEN35_PREFILL_GEMM"};
  RunFacts facts;
  facts.uses_gpu = false;
  EXPECT_EQ(ignored_flags(given, facts),
            "--prefill, --vram, APR_QWEN35_PREFILL_GEMM (the CPU runs); --revalidate (the CPU "
            "runs)");
  facts.gpu_was_tried = true;
  EXPECT_EQ(ignored_flags(given, facts), "--revalidate (the CPU runs)");
  facts.gpu_was_tried = false;
  facts.cpu_was_asked = true;
  EXPECT_EQ(ignored_flags(std::vector<std::string>{"--device"}, facts), "--device (the CPU runs)");
}

TEST(IgnoredFlags, ExactCountsForThePlanOfAGpuAlone) {
  RunFacts facts;
  facts.is_plan = facts.is_lowered = true;
  const std::vector<std::string> given = {"--exact"};
  EXPECT_EQ(ignored_flags(given, facts), "");
  facts.uses_gpu = false;
  EXPECT_EQ(ignored_flags(given, facts), "--exact (only a GPU's plan depends on it)");
}

// A flag that is renamed must not drop out of the table unnoticed.
TEST(IgnoredFlags, EveryNameInTheTableIsAFlagOfSomeVerb) {
  std::vector<std::string> all;
  for (const VerbRow& row : verb_table()) {
    const std::unique_ptr<Verb> verb = row.make();
    CLI::App app;
    verb->add_options(app);
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        all.push_back("--" + name);
      }
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  int n_flags = 0;
  for (const std::string& name : ignorable_flags()) {
    if (name.starts_with("--")) {  // the others are variables
      ++n_flags;
      EXPECT_TRUE(std::binary_search(all.begin(), all.end(), name)) << name;
    }
  }
  EXPECT_GT(n_flags, 20);
}

BackendOptions flags(bool gpu, bool no_gpu, const std::string& backend) {
  BackendOptions options;
  options.gpu = gpu;
  options.no_gpu = no_gpu;
  options.backend = backend;
  return options;
}

// A GPU that cannot be used, for the reason that `code` stands for.
cuda::Readiness missing(ErrorCode code) {
  cuda::Readiness readiness;
  readiness.code = code;
  readiness.reason = "the reason";
  readiness.remedy = "the remedy";
  return readiness;
}

TEST(BackendChoice, CpuAndDefaultRunOnTheCpuAndSayWhy) {
  int n_checks = 0;
  const auto check = [&] {
    ++n_checks;
    return missing(ErrorCode::kBackendUnavailable);
  };
  for (const BackendOptions& options :
       {flags(false, true, ""), flags(false, false, "cpu"), flags(false, true, "cpu")}) {
    const BackendChoice choice = choose_backend(options, check);
    EXPECT_EQ(choice.requested, "cpu");
    EXPECT_EQ(choice.ran, "cpu");
    EXPECT_FALSE(choice.used_gpu());
    EXPECT_FALSE(choice.fell_back());
    EXPECT_NE(choice.reason.find("asked for"), std::string::npos);
  }
  EXPECT_EQ(n_checks, 0);  // a CPU run never touches the GPU
  const BackendChoice choice = choose_backend(flags(false, false, ""), check);
  EXPECT_EQ(choice.requested, "default");
  EXPECT_EQ(choice.ran, "cpu");
  EXPECT_EQ(choice.reason, "the reason");
  EXPECT_FALSE(choice.fell_back());
}

TEST(BackendChoice, AForcedGpuThatIsMissingFailsWithReasonAndRemedy) {
  for (const ErrorCode code : {ErrorCode::kFeatureDisabled, ErrorCode::kBackendUnavailable}) {
    for (const BackendOptions& options :
         {flags(true, false, ""), flags(false, false, "cuda"), flags(true, false, "cpu")}) {
      try {
        choose_backend(options, [&] { return missing(code); });
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        const std::string message = error.what();
        EXPECT_NE(message.find(": the reason; the remedy; --no-gpu"), std::string::npos);
        EXPECT_EQ(message.find(options.gpu ? "--gpu" : "--backend cuda"), 0U);
      }
    }
  }
}

cuda::Readiness ready() {
  cuda::Readiness readiness;
  readiness.ready = true;
  return readiness;
}

TEST(BackendChoice, AReadyGpuIsTheDefaultAndMayBeForced) {
  const BackendChoice by_default = choose_backend(flags(false, false, ""), ready);
  EXPECT_EQ(by_default.requested, "default");
  EXPECT_EQ(by_default.ran, "gpu");
  EXPECT_TRUE(by_default.used_gpu());
  EXPECT_FALSE(by_default.fell_back());
  EXPECT_EQ(by_default.device, 0);
  for (BackendOptions options :
       {flags(true, false, ""), flags(false, false, "cuda"), flags(true, false, "cpu")}) {
    options.device = 3;
    const BackendChoice forced = choose_backend(options, ready);
    EXPECT_EQ(forced.requested, "gpu");
    EXPECT_EQ(forced.ran, "gpu");
    EXPECT_EQ(forced.device, 3);
    EXPECT_NE(forced.reason.find(options.gpu ? "--gpu" : "--backend cuda"), std::string::npos);
  }
}

TEST(BackendChoice, ContradictionsAreUsageErrors) {
  const auto check = [] { return missing(ErrorCode::kFeatureDisabled); };
  EXPECT_NE(usage_error([&] { choose_backend(flags(true, true, ""), check); }), "");
  EXPECT_NE(usage_error([&] { choose_backend(flags(false, true, "cuda"), check); }), "");
}

}  // namespace
}  // namespace apr::cli
