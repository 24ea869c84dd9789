#pragma once

#include "libactor/internal/socket.hpp"
#include "libactor/internal/worker_start.hpp"
#include "libactor/internal/zygote.hpp"
#include "libactor/preload.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

/// The frames between a zygote and its owner. Both are the same binary, so there is no version; but
/// user code runs in the zygote, so everything is checked before it is believed.
namespace troupe::internal {

inline constexpr const char* kRoleVariable = "TROUPE_ROLE";
inline constexpr const char* kFdVariable = "TROUPE_FD";
/// "<zygote's random name>.<lease, 16 hex digits>": in every process that a zygote starts and in
/// all that those start; by it they are found when they outlive their worker. Lease 0: the zygote.
inline constexpr const char* kLeaseVariable = "TROUPE_LEASE";

std::string lease_text(std::string_view zygote_name, std::uint64_t lease);

// --- to the zygote --------------------------------------------------------------------------

struct SettingsOrder {
  bool strict = false;
  Parameters parameters = {};
};
/// Comes with two descriptors: control and line.
struct StartOrder {
  WorkerStart start = {};
};
struct SignalOrder {
  std::uint64_t lease = 0;
  int number = 0;
  bool group = false;
};
using ZygoteOrder = std::variant<SettingsOrder, StartOrder, SignalOrder>;

std::string encode(const ZygoteOrder& order);
std::optional<ZygoteOrder> decode_order(std::string_view bytes);  ///< empty: not a frame of ours

// --- from the zygote ------------------------------------------------------------------------

/// Before each preload function, so that a crash in it can be told; with an empty name after the
/// last.
struct LoadingNote {
  std::string name = {};
};
using ZygoteNote = std::variant<zygote_event::Ready, zygote_event::Warned, zygote_event::Started,
                                zygote_event::StartFailed, zygote_event::Exited,
                                zygote_event::Output, LoadingNote>;

std::string encode(const ZygoteNote& note);
std::optional<ZygoteNote> decode_note(std::string_view bytes);

}  // namespace troupe::internal
