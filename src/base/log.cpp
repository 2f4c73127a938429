#include "base/log.h"

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
  logger().error("error: {}", message);
}
void log_warning(const std::string& message) {
  logger().warn("warning: {}", message);
}
void log_note(const std::string& message) {
  logger().info("{}", message);
}
void log_detail(const std::string& message) {
  logger().debug("{}", message);
}

}  // namespace apr
