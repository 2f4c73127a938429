// What ptxas said about local memory, out of the log of a compilation.
#pragma once

#include <fmt/format.h>

#include <regex>
#include <string>

namespace apr::test {

// The lines that tell of local memory in use, or that nothing was told; empty: no kernel uses any.
inline std::string local_memory_lines(const std::string& log) {
  static const std::regex line(
      R"((\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads)");
  std::string found;
  int n_lines = 0;
  for (std::sregex_iterator it(log.begin(), log.end(), line), end; it != end; ++it, ++n_lines) {
    if ((*it)[1] != "0" || (*it)[2] != "0" || (*it)[3] != "0") {
      found += it->str() + "\n";
    }
  }
  return n_lines == 0 ? "the log has no line on stack and spills: " + log : found;
}

}  // namespace apr::test
