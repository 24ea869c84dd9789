#pragma once

#include "libactor/blob.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <functional>
#include <vector>

namespace troupe::test {

/// A type that only a sender knows.
struct Unknown {
  int value = 0;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Unknown& x) {
  return f(caf::meta::type_name("troupe::test::Unknown"), x.value);
}

}  // namespace troupe::test

CAF_BEGIN_TYPE_ID_BLOCK(troupe_test, caf::first_custom_type_id + 2000)
CAF_ADD_TYPE_ID(troupe_test, (troupe::Blob))
CAF_ADD_TYPE_ID(troupe_test, (std::vector<double>))
CAF_END_TYPE_ID_BLOCK(troupe_test)

CAF_BEGIN_TYPE_ID_BLOCK(troupe_unknown, caf::first_custom_type_id + 2100)
CAF_ADD_TYPE_ID(troupe_unknown, (troupe::test::Unknown))
CAF_END_TYPE_ID_BLOCK(troupe_unknown)

namespace troupe::test {

inline void add_types(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::troupe_test>();
}

inline caf::message_handler echo_handlers() {
  return {[](double x) { return x; }, [](const std::vector<double>& x) { return x; },
          [](const Blob& x) { return x; }};
}

/// An actor that answers what it is sent.
inline caf::behavior echo() { return echo_handlers(); }

/// What `to` answers, or the error of the request.
template <class Reply, class Message>
Result<Reply> ask(caf::actor_system& system, const caf::actor& to, Message message,
                  std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
  Result<Reply> reply{Error{}};
  caf::scoped_actor self{system};
  self->request(to, timeout, std::move(message))
      .receive([&](Reply& value) { reply = std::move(value); },
               [&](caf::error& failed) { reply = std::move(failed); });
  return reply;
}

/// Why `watched` went down, or timed_out.
inline Error wait_down(caf::actor_system& system, const caf::actor& watched,
                       std::chrono::milliseconds timeout, const std::function<void()>& then) {
  Error reason = make_error(Errc::timed_out, "no down message");
  caf::scoped_actor self{system};
  self->monitor(watched);
  then();
  self->receive([&](caf::down_msg& down) { reason = std::move(down.reason); },
                caf::after(timeout) >> [] {});
  return reason;
}

}  // namespace troupe::test
