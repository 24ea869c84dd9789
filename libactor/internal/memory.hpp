#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::internal {

/// What the workers use, as their share of the machine: pages that several processes map are
/// divided among them (PSS), so data of the zygote costs each of its workers a part only.
///
/// lease_of_group: process group of each worker -> its lease. variable: "TROUPE_LEASE", which
/// processes that left the group by setsid still carry in the environment that they were started
/// with. Bytes by lease; a lease without a process is left out. One pass over /proc, for all
/// leases.
std::map<std::string, std::int64_t> pss_by_lease(const std::filesystem::path& root,
                                                 const std::map<pid_t, std::string>& lease_of_group,
                                                 std::string_view variable);

/// How many processes of our control group the kernel has killed for want of memory, ever; where
/// there is no group, of the machine. It rises before the victim's SIGKILL, so that comparing with
/// an earlier value explains a SIGKILL that nobody of ours sent. 0 where no kernel tells.
std::int64_t oom_kill_count(const std::filesystem::path& root);

/// Whether a worker must be killed: "out of memory: used 512.0MiB of 256.0MiB granted". A grant of
/// 0 is none.
std::optional<std::string> above_grant(std::int64_t granted_bytes, std::int64_t used_bytes);

}  // namespace troupe::internal
