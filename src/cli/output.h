// stdout: the answer and nothing else, written at once, every failure noticed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace apr::cli {

// Writes all of `text` to stdout. Throws kIo; where the reader of a pipe has gone, the process ends
// by SIGPIPE, as `cat` does.
void write_stdout(std::string_view text);

// Writes `value` and a newline: indented for people, or in one line. Bytes that are not UTF-8 (in a
// file name) become U+FFFD.
void write_json(const nlohmann::ordered_json& value, bool indented);

// `text` with control characters and quotes escaped as in JSON, safe on a terminal; in_quotes: the
// same in double quotes.
std::string printable(std::string_view text);
std::string in_quotes(std::string_view text);

bool stdout_is_terminal();
bool stderr_is_terminal();
bool stdin_is_terminal();

}  // namespace apr::cli
