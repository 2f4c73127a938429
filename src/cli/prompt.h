// Text from an argument, a flag, a file or a pipe.
#pragma once

#include <optional>
#include <string>

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

}  // namespace apr::cli
