#include "libactor/result.hpp"

#include <caf/all.hpp>

#include <cstdio>

namespace troupe {
namespace {

const caf::atom_value kCategory = caf::atom("troupe");

Errc from_sec(caf::sec code) {
  switch (code) {
    case caf::sec::request_timeout:
    case caf::sec::connection_timeout: return Errc::timed_out;
    case caf::sec::request_receiver_down:
    case caf::sec::no_route_to_receiving_node:
    case caf::sec::disconnect_during_handshake:
    case caf::sec::socket_disconnected: return Errc::peer_lost;
    case caf::sec::runtime_error: return Errc::user_code;
    default: return Errc::bad_request;
  }
}

}  // namespace

std::string_view name_of(Errc code) {
  switch (code) {
    case Errc::timed_out: return "timed out";
    case Errc::peer_lost: return "peer lost";
    case Errc::out_of_resources: return "out of resources";
    case Errc::refused: return "refused";
    case Errc::not_found: return "not found";
    case Errc::bad_request: return "bad request";
    case Errc::corrupt: return "corrupt";
    case Errc::io: return "io";
    case Errc::user_code: return "user code";
    case Errc::cancelled: return "cancelled";
  }
  return "unknown";
}

Error make_error(Errc code, std::string text) {
  return Error{static_cast<std::uint8_t>(code), kCategory, caf::make_message(std::move(text))};
}

Errc code_of(const Error& error) {
  if (!error) return Errc::bad_request;
  if (error.category() == kCategory) return static_cast<Errc>(error.code());
  if (error.category() == caf::atom("system")) return from_sec(static_cast<caf::sec>(error.code()));
  if (error.category() == caf::atom("exit")) return Errc::peer_lost;
  return Errc::bad_request;
}

std::string text_of(const Error& error) {
  if (!error) return "no error";
  if (error.category() == kCategory && error.context().match_elements<std::string>())
    return error.context().get_as<std::string>(0);
  if (error.category() == caf::atom("system")) {
    std::string text = to_string(static_cast<caf::sec>(error.code()));
    if (!error.context().empty()) text += " " + caf::to_string(error.context());
    return text;
  }
  return caf::to_string(error);
}

std::string describe(const Error& error) {
  if (!error) return "no error";
  return std::string(name_of(code_of(error))) + ": " + text_of(error);
}

Error with_context(const Error& error, std::string_view context) {
  return make_error(code_of(error), std::string(context) + ": " + text_of(error));
}

std::string_view without_frames(std::string_view what) {
  for (std::string_view mark : {"\nException raised from", "\nstack: "})
    if (auto at = what.find(mark); at != std::string_view::npos) what = what.substr(0, at);
  return what;
}

namespace internal {

std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& e) {
    return std::string(without_frames(e.what()));
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text;
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace internal

int fail(const Error& error) {
  std::fprintf(stderr, "error: %s\n", describe(error).c_str());
  return code_of(error) == Errc::cancelled ? 130 : 1;
}

}  // namespace troupe
