#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

namespace apr {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    sink->set_pattern("%v");
    return std::make_shared<spdlog::logger>("apr", sink);
  }();
  return *instance;
}

// `text` with what a terminal would obey, as a file's name or a variable may hold it, spelled out.
std::string without_controls(const std::string& text) {
  std::string clean;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
    clean += is_control ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return clean;
}

}  // namespace

void set_log_level(LogLevel level) {
  logger().set_level(level == LogLevel::kQuiet     ? spdlog::level::err
                     : level == LogLevel::kVerbose ? spdlog::level::debug
                                                   : spdlog::level::info);
}

LogLevel log_level() {
  const auto level = logger().level();
  return level >= spdlog::level::err     ? LogLevel::kQuiet
         : level <= spdlog::level::debug ? LogLevel::kVerbose
                                         : LogLevel::kNormal;
}

void log_error(const std::string& message) {
  logger().error("error: {}", without_controls(message));
}
void log_warning(const std::string& message) {
  logger().warn("warning: {}", without_controls(message));
}
void log_note(const std::string& message) {
  logger().info("{}", without_controls(message));
}
void log_detail(const std::string& message) {
  logger().debug("{}", without_controls(message));
}

}  // namespace apr
