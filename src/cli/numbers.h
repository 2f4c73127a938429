// Numbers as people type them: the whole text, within a range, or an error that names the flag.
#pragma once

#include <cstdint>
#include <string>

namespace apr::cli {

// A whole number in [min, max]. Throws kUsage naming flag, value and range.
int64_t parse_whole(const std::string& flag, const std::string& text, int64_t min, int64_t max);

// A finite number in [min, max]. Throws kUsage naming flag, value and range.
double parse_real(const std::string& flag, const std::string& text, double min, double max);

// Memory in bytes: a whole number, or one of GiB or MiB as "24G" and "512M"; at least 1 MiB. Throws
// kUsage.
uint64_t parse_memory(const std::string& flag, const std::string& text);

// A seed: any 64-bit unsigned number. Throws kUsage.
uint64_t parse_seed(const std::string& flag, const std::string& text);

}  // namespace apr::cli
