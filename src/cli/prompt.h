// Text from an argument, a flag, a file or a pipe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apr/tokenizer.h"

namespace apr::cli {

struct TextSources {
  std::optional<std::string> argument;  // "-" reads stdin
  std::optional<std::string> flag;      // -p
  std::optional<std::string> file;      // -i; "-" reads stdin
};

struct TextInput {
  std::string text;
  bool is_from_stream = false;  // a file or a pipe, which mostly end in a newline
};

// The text of the one source given, else of stdin where that is no terminal; nothing where there is
// no source. Throws kUsage for two sources, kFileNotFound, kIo, kInterrupted, kInvalidFormat for
// more than 256 MiB.
std::optional<TextInput> read_text(const TextSources& sources);

// All of the file at `path`, "-" for stdin. Throws as read_text.
std::string read_whole_file(const std::string& path);

// The JSON array of token ids in the file at `path`. Throws kInvalidFormat for anything else and
// for an id outside [0, vocab_rows).
std::vector<TokenId> read_ids(const std::string& path, int64_t vocab_rows);

}  // namespace apr::cli
