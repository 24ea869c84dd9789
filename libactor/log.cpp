#include "libactor/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace troupe {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::warn;
}

/// False when the text is no level.
bool parse_level(std::string_view text, LogLevel& level) {
  if (text == "debug") return level = LogLevel::debug, true;
  if (text == "info") return level = LogLevel::info, true;
  if (text == "warn") return level = LogLevel::warn, true;
  if (text == "error") return level = LogLevel::error, true;
  if (text == "off") return level = LogLevel::off, true;
  return false;
}

/// Apart from spdlog's default logger, which is the user's.
struct ProcessLog {
  spdlog::logger logger{"troupe", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  LogLevel level = LogLevel::warn;

  void start(std::string_view role, LogLevel fallback) {
    const char* wanted = std::getenv("TROUPE_LOG");
    level = fallback;
    const bool known = wanted == nullptr || *wanted == 0 || parse_level(wanted, level);
    std::string escaped_role;
    for (char c : role) escaped_role += c == '%' ? std::string("%%") : std::string(1, c);
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%e %l " + escaped_role + "[%P] %v");
    logger.set_level(spdlog_level(level));
    logger.flush_on(spdlog::level::trace);
    if (!known)
      logger.warn("TROUPE_LOG is \"{}\": expected debug, info, warn, error or off", wanted);
  }
};

ProcessLog& process_log() {
  // Never destroyed: threads may log while the process ends.
  static ProcessLog* log = [] {
    auto* made = new ProcessLog;
    made->start("troupe", LogLevel::warn);
    return made;
  }();
  return *log;
}

}  // namespace

void start_log(std::string_view role, LogLevel fallback) { process_log().start(role, fallback); }

LogLevel log_level() { return process_log().level; }

void log_debug(std::string_view sentence) { process_log().logger.debug(sentence); }
void log_info(std::string_view sentence) { process_log().logger.info(sentence); }
void log_warn(std::string_view sentence) { process_log().logger.warn(sentence); }
void log_error(std::string_view sentence) { process_log().logger.error(sentence); }

}  // namespace troupe
