#pragma once

#include "libactor/log.hpp"
#include "libactor/result.hpp"

#include <caf/scheduled_actor.hpp>

#include <exception>
#include <string>

namespace troupe::internal {

/// What every actor of ours does first: an exception that slips through a handler is logged and
/// answered as an error, and an error that nobody expected is logged; neither ends the actor
/// without a word.
template <class Self>
void guard(Self* self) {
  self->set_exception_handler([self](std::exception_ptr& caught) -> caf::error {
    const auto result = fence(Errc::bad_request, [&] { std::rethrow_exception(caught); });
    log_error(std::string(self->name()) +
              ": an exception in a handler, a bug of ours: " + describe(result.error()));
    return result.error();
  });
  self->set_error_handler([self](caf::scheduled_actor*, caf::error& error) {
    log_error(std::string(self->name()) + ": an error that nobody took: " + describe(error));
  });
}

}  // namespace troupe::internal
