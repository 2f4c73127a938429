#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apr/error.h"
#include "base/log.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "cli/verb.h"

namespace apr::cli {
namespace {

std::string main_help() {
  std::string text =
      "apr runs GGUF models of the Qwen2.5, Qwen3 and Qwen3.5 families.\n\n"
      "Usage: apr VERB MODEL [OPTIONS]\n\n"
      "Verbs (apr VERB --help says more):\n";
  for (const VerbRow& row : verb_table()) {
    text += fmt::format("  {:<10} {}\n", row.name, row.summary);
  }
  text +=
      "\nMODEL is a GGUF file, or demo: the small model inside this program.\n"
      "Answers go to stdout, everything else to stderr.\n\nExamples:\n";
  for (const VerbRow& row : verb_table()) {
    const std::string_view examples = row.examples;
    text += examples.substr(0, examples.find('\n') + 1);
  }
  text += "\nExit codes:\n    0  success\n";
  for (const ErrorCodeRow& row : error_code_table()) {
    text += fmt::format("  {:>3}  {}\n", static_cast<int>(row.code), row.meaning);
  }
  return text;
}

std::string verb_names() {
  std::string names;
  for (const VerbRow& row : verb_table()) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

// What a usage error is reported in, before the flags are parsed: they may be what is wrong.
OutputFormat requested_format(const std::vector<std::string>& args) {
  for (size_t idx = 0; idx < args.size() && args[idx] != "--"; ++idx) {
    const std::string& arg = args[idx];
    const bool is_format = arg == "-f" || arg == "--format";
    const std::string next = is_format && idx + 1 < args.size() ? args[idx + 1] : std::string();
    if (arg == "--json" || arg == "--format=json" || next == "json") {
      return OutputFormat::kJson;
    }
    if (arg == "--stream" || arg == "--format=ndjson" || next == "ndjson") {
      return OutputFormat::kNdjson;
    }
  }
  return OutputFormat::kText;
}

// What the first flag in `args` that llama.cpp and ollama have under another name is called here;
// empty where there is none.
std::string other_name_hint(const std::vector<std::string>& args) {
  struct Row {
    std::string_view names, hint;  // names between spaces
  };
  static constexpr Row kRows[] = {
      {" -m --model ", "the model is an argument: apr VERB MODEL"},
      {" --temp ", "the flag is --temperature"},
      {" -t ", "the flag is --threads"},
      {" -c --ctx-size --num-ctx ", "the flag is --context"},
      {" -s ", "the flag is --seed"},
      {" --n-predict --predict --num-predict ", "the flag is -n"},
      {" -b -ub --batch-size --ubatch-size ", "the flag is --prefill-chunk"},
      {" -ngl --gpu-layers --n-gpu-layers ", "all layers run in one place: --gpu or --no-gpu"},
      {" -sys --system-prompt ", "the flag is --system"},
      {" -cnv --conversation ", "the flag is --chat"},
      {" --file ", "the flag is -i"},
      {" -o --output ", "the flag is --format"},
      {" --think ", "the flag is --thinking on or off"},
  };
  for (const std::string& arg : args) {
    if (arg == "--") {
      break;
    }
    for (const Row& row : kRows) {
      if (arg.starts_with('-') && row.names.find(" " + arg + " ") != std::string_view::npos) {
        return fmt::format("{}: {}", arg, row.hint);
      }
    }
  }
  return "";
}

// Parses the flags of a verb. Returns false where --help, --version or --list-devices was answered
// instead.
bool parse_flags(CLI::App& app, const std::vector<std::string>& args, const std::string& verb,
                 OutputFormat format) {
  try {
    std::vector<std::string> reversed = separate_values(app, args);
    std::reverse(reversed.begin(), reversed.end());
    app.parse(std::move(reversed));
    return true;
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
    return false;
  } catch (const CLI::CallForVersion& version) {
    write_stdout(std::string(version.what()) + "\n");
    return false;
  } catch (const ListDevicesCalled&) {
    print_devices(format);
    return false;
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    const std::string hint = other_name_hint(args);
    throw Error(ErrorCode::kUsage, fmt::format("{}; {}{}see apr {} --help", message, hint,
                                               hint.empty() ? "" : "; ", verb));
  } catch (const Error& error) {  // -ngl is -n with the value "gl"
    const std::string hint = other_name_hint(args);
    if (hint.empty()) {
      throw;
    }
    throw Error(error.code(), fmt::format("{}; {}", error.what(), hint));
  }
}

}  // namespace

std::vector<std::string> separate_values(const CLI::App& app,
                                         const std::vector<std::string>& args) {
  std::vector<std::string> separated;
  for (size_t idx = 0; idx < args.size(); ++idx) {
    const std::string& arg = args[idx];
    if (arg == "--") {
      separated.insert(separated.end(), args.begin() + static_cast<ptrdiff_t>(idx), args.end());
      break;
    }
    const size_t equals = arg.starts_with('-') ? arg.find('=') : std::string::npos;
    const std::string name = arg.substr(0, equals);
    const CLI::Option* option =
        name.starts_with('-') && name.size() > 1 ? app.get_option_no_throw(name) : nullptr;
    const bool takes_value = option != nullptr && option->get_items_expected_max() > 0;
    if (takes_value && equals != std::string::npos) {
      separated.push_back(name);
      separated.push_back(arg.substr(equals + 1));
      continue;
    }
    separated.push_back(arg);
    if (takes_value && idx + 1 < args.size()) {
      separated.push_back(args[++idx]);
    }
  }
  return separated;
}

int run_command_line(const std::vector<std::string>& args, OutputFormat& format) {
  format = requested_format(args);
  if (args.empty()) {
    log_error("no verb; it must be one of: " + verb_names() + "\n\n" + main_help());
    return static_cast<int>(ErrorCode::kUsage);
  }
  const std::string& name = args.front();
  if (name == "--help" || name == "-h") {
    write_stdout(main_help());
    return 0;
  }
  if (name == "--version") {
    write_stdout(std::string("apr ") + APR_VERSION + "\n");
    return 0;
  }
  const auto& verbs = verb_table();
  const auto row = std::find_if(verbs.begin(), verbs.end(),
                                [&](const VerbRow& candidate) { return candidate.name == name; });
  if (row == verbs.end()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("no verb \"{}\"; it must be one of: {}", name, verb_names()));
  }
  CLI::App app(row->summary, std::string("apr ") + row->name);
  app.footer(std::string("\nExamples:\n") + row->examples);
  const std::unique_ptr<Verb> verb = row->make();
  verb->add_options(app);
  if (!parse_flags(app, {args.begin() + 1, args.end()}, name, format)) {
    return 0;
  }
  verb->given = given_flags(app);
  format = verb->output.format;
  if (verb->output.quiet && verb->output.verbose) {
    throw Error(ErrorCode::kUsage, "--quiet and --verbose contradict each other; give one of them");
  }
  set_log_level(verb->output.quiet     ? LogLevel::kQuiet
                : verb->output.verbose ? LogLevel::kVerbose
                                       : LogLevel::kNormal);
  return verb->run();
}

}  // namespace apr::cli
