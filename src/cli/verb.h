// A verb of the command line: its flags and what it does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"

namespace apr::cli {

class Verb {
 public:
  virtual ~Verb() = default;

  // Declares the flags; their values land in the members of the verb.
  virtual void add_options(CLI::App& app) = 0;

  // Does the work and returns the exit code; throws apr::Error.
  virtual int run() = 0;

  OutputOptions output;
  std::vector<std::string> given;  // the flags on the command line, as given_flags
};

std::unique_ptr<Verb> make_run_verb();
std::unique_ptr<Verb> make_inspect_verb();
std::unique_ptr<Verb> make_tensors_verb();
std::unique_ptr<Verb> make_tokenize_verb();
std::unique_ptr<Verb> make_logits_verb();
std::unique_ptr<Verb> make_plan_verb();
std::unique_ptr<Verb> make_fit_verb();
std::unique_ptr<Verb> make_parity_verb();
std::unique_ptr<Verb> make_bench_verb();
std::unique_ptr<Verb> make_doctor_verb();

struct VerbRow {
  const char* name;
  const char* summary;  // one line of `apr --help`
  const char* examples;
  std::unique_ptr<Verb> (*make)();
};

// All verbs, in the order of `apr --help`.
const std::vector<VerbRow>& verb_table();

}  // namespace apr::cli
