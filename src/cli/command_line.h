// From the arguments of the process to an exit code.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace apr::cli {

// Parses and runs. `format` tells the caller in which form to report an error, from the first
// moment it is known. Throws apr::Error and whatever a verb throws.
int run_command_line(const std::vector<std::string>& args, OutputFormat& format);

// `args` with each flag apart from its value ("--n=5" -> "--n", "5"), so that CLI11 takes values as
// they are: empty ones, and ones that look like flags. What follows "--" stays.
std::vector<std::string> separate_values(const CLI::App& app, const std::vector<std::string>& args);

}  // namespace apr::cli
