#pragma once

#include <string_view>

namespace troupe {

enum class LogLevel { debug, info, warn, error, off };

/// Names this process in each line of its log: "driver", "zygote", "worker a1b2c_00003". Lines go
/// to standard error, at once. The level is TROUPE_LOG (debug, info, warn, error or off), else
/// `fallback`.
///
/// Call it while the process has one thread: in `init`, and again in a forked child. Without it the
/// role is "troupe" and the fallback `warn`.
void start_log(std::string_view role, LogLevel fallback = LogLevel::warn);

LogLevel log_level();

/// A sentence first, then key=value: "trial stopped: trial=7f3a rung=2". Thread-safe.
/// error: someone must act. warn: we recovered, look if it repeats. info: what an operator would
/// want in a month. debug: what we want today.
void log_debug(std::string_view sentence);
void log_info(std::string_view sentence);
void log_warn(std::string_view sentence);
void log_error(std::string_view sentence);

}  // namespace troupe
