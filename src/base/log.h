// Messages to the person at the terminal: always on stderr, never on stdout.
#pragma once

#include <string>

namespace apr {

enum class LogLevel { kQuiet, kNormal, kVerbose };

// What is shown from now on; kNormal shows warnings and notes, kVerbose also details, kQuiet only
// errors.
void set_log_level(LogLevel level);
LogLevel log_level();

void log_error(const std::string& message);    // "error: ..."
void log_warning(const std::string& message);  // "warning: ..."
void log_note(const std::string& message);     // what was chosen and why; plain line
void log_detail(const std::string& message);   // shown by --verbose

}  // namespace apr
