#pragma once

#include <caf/error.hpp>
#include <caf/expected.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

/// What a caller can do about an error. A code is here only if some caller acts on it.
enum class Errc : std::uint8_t {
  timed_out = 1,     ///< try elsewhere, or again
  peer_lost,         ///< the other process is gone: try elsewhere
  out_of_resources,  ///< wait until something is free
  refused,           ///< do not try again
  not_found,         ///< what was named does not exist
  bad_request,       ///< the caller's input is wrong; the text names the thing and the way out
  corrupt,           ///< take an older copy
  io,                ///< the disk or a socket failed; may pass
  user_code,         ///< the user's code threw: counts against `max_failures`
  cancelled,         ///< somebody asked for the end
};

/// The word for a code, as it stands in `describe`: "timed_out".
std::string_view name_of(Errc code);

/// An error is a value: code and sentence. Make it by `make_error` only.
using Error = caf::error;

/// A value or an Error.
template <class T>
using Result = caf::expected<T>;

/// text: a sentence without full stop that names the thing, the value and the way out.
Error make_error(Errc code, std::string text);

/// The code of an error. CAF's own codes are translated here and nowhere else.
Errc code_of(const Error& error);

/// The sentence of an error, without its code.
std::string text_of(const Error& error);

/// Code and sentence, for people: "io: write result.json: No space left on device".
std::string describe(const Error& error);

/// The same error with "context: " before its sentence.
Error with_context(const Error& error, std::string_view context);

/// `what()` of LibTorch's and Cap'n Proto's exceptions ends in pages of frames; this cuts them off.
std::string_view without_frames(std::string_view what);

/// What `unwrap` throws.
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error) : std::runtime_error(describe(error)), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

namespace internal {

/// The sentence for the exception that is being handled. Call inside a catch block only.
std::string current_exception_text();

}  // namespace internal

/// Runs `body` and turns whatever it throws into an Error of `code`, text cut by `without_frames`.
///
/// The one place where exceptions end. It stands around user code (`tune/internal/trial_main.cpp`,
/// `tune/internal/experiment.*`, `tune/internal/scheduler_actor.cpp`, `tune/searcher.cpp`,
/// `libactor/internal/worker_main.cpp`, `libactor/preload.cpp`), LibTorch (`sgd/`), and around
/// Cap'n Proto and JSON (`libactor/checkpoint.cpp`, `tune/internal/journal.cpp`,
/// `tune/internal/wire.cpp`, `tune/internal/json.cpp`).
template <class F>
auto fence(Errc code, F&& body) {
  using Value = std::invoke_result_t<F>;
  try {
    if constexpr (std::is_void_v<Value>) {
      std::forward<F>(body)();
      return Result<void>{};
    } else {
      return Result<Value>{std::forward<F>(body)()};
    }
  } catch (const Exception& e) {
    return Result<Value>{e.error()};
  } catch (...) {
    return Result<Value>{make_error(code, internal::current_exception_text())};
  }
}

/// The value, or throws `Exception`: for programs that like exceptions.
template <class T>
T unwrap(Result<T> result) {
  if (!result) throw Exception(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// Prints "error: …" to standard error, for `return fail(x.error());` in main. Returns 130 for
/// `cancelled`, as a shell does for Ctrl-C, else 1.
int fail(const Error& error);

}  // namespace troupe
