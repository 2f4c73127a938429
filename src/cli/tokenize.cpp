// apr tokenize: text to token ids; works on files that hold only a vocabulary.
#include <fmt/format.h>

#include "apr/error.h"
#include "apr/tokenizer.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/verb.h"

namespace apr::cli {
namespace {

class TokenizeVerb : public Verb {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  std::string model_;
  TextSources sources_;
  bool no_special_ = false;
};

void TokenizeVerb::add_options(CLI::App& app) {
  add_model(app, model_);
  add_value(
      app, "TEXT", "", [this](const std::string& text) { sources_.argument = text; },
      "The text, byte by byte; - (or a pipe) reads it from stdin");
  add_value(
      app, "-p,--prompt", "TEXT", [this](const std::string& text) { sources_.flag = text; },
      "The text");
  add_value(
      app, "-i,--input", "FILE", [this](const std::string& text) { sources_.file = text; },
      "The text is what FILE holds");
  add_switch(app, "--no-special", no_special_,
             "Special tokens written in the text (<|im_end|>) are plain text");
  add_output(app, output, false);
}

int TokenizeVerb::run() {
  catch_interrupts();
  const std::optional<TextInput> input = read_text(sources_);
  if (!input) {
    throw Error(ErrorCode::kUsage,
                fmt::format("no text; example: apr tokenize {} \"Hello, world\"", model_));
  }
  const GgufFile file = open_model_file(model_);
  const Tokenizer tokenizer(file);
  const std::vector<TokenId> ids = tokenizer.encode(input->text, !no_special_);
  if (output.is_json()) {
    write_json({{"ids", ids}}, false);
    return 0;
  }
  std::string text;
  for (const TokenId id : ids) {
    text += fmt::format("{:>7}  {}\n", id, in_quotes(tokenizer.token_bytes(id)));
  }
  write_stdout(text);
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_tokenize_verb() {
  return std::make_unique<TokenizeVerb>();
}

}  // namespace apr::cli
