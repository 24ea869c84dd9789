#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

/// How often a failed worker is started again; -1: for ever. The two kinds are counted apart.
struct RestartPolicy {
  std::int64_t max_failures = 0;                 ///< of the user's code, as in Ray
  std::int64_t max_infrastructure_failures = 3;  ///< free of charge for the user
  /// The first restart comes at once, the second after `back_off`, each further one after twice the
  /// time, at most `max_back_off`; a worker that got on in between starts from the beginning.
  std::chrono::milliseconds back_off{100};
  std::chrono::milliseconds max_back_off{30'000};

  bool operator==(const RestartPolicy&) const = default;
};

/// A worker that can't reach its owner leaves by `_exit` with this: nobody's fault but the
/// machines'.
inline constexpr int kOwnerLostExitCode = 121;

/// All that is known of how a worker ended. Exit report, last message and loss of the connection
/// come in no order: collect them, then classify.
struct Ending {
  /// The acknowledged last message: the body has returned. Without it every exit is a failure.
  bool said_goodbye = false;
  std::string goodbye_failure = {};  ///< what the body failed with; empty: it succeeded

  enum class KilledFor : std::uint8_t {
    nothing,         ///< we did not kill it
    unwanted,        ///< its owner does not want it any more: no failure
    user,            ///< memory above the grant, a step that took too long
    infrastructure,  ///< its machine was lost, it was fenced
  };
  KilledFor killed_for = KilledFor::nothing;
  std::string killed_because = {};  ///< the sentence

  bool never_began = false;  ///< its body was not called: no code of the user's has run
  bool reaped = false;       ///< exit_code or signal is known; false: zygote or machine is gone
  int exit_code = 0;         ///< when signal is 0
  int signal = 0;            ///< that ended it
  bool oom_killed = false;   ///< the kernel's counter of out-of-memory kills rose meanwhile
};

/// Whose failure it was, and the sentence for error.txt.
struct Failure {
  enum class Kind : std::uint8_t { none, user, infrastructure };
  Kind kind = Kind::none;
  std::string text = {};

  bool operator==(const Failure&) const = default;
};

/// The rules of libactor/README.md, "The life of a worker". A SIGKILL that nobody of ours sent
/// counts as infrastructure, also where user code sent it to itself: the kernel does not tell.
Failure classify(const Ending& ending);

/// Counts the failures of one worker and decides what follows. Pure.
class SupervisorPolicy {
 public:
  struct Decision {
    bool restart = false;
    std::chrono::milliseconds delay{0};
    std::string text = {};  ///< the failure's, and which limit is used up when there is no restart
  };

  explicit SupervisorPolicy(RestartPolicy policy, std::int64_t user_failures = 0,
                            std::int64_t infrastructure_failures = 0)
      : policy_(policy),
        user_failures_(user_failures),
        infrastructure_failures_(infrastructure_failures) {}

  /// failure.kind is not `none`.
  Decision failed(const Failure& failure);
  /// The worker got on: a result came. The next restart is immediate again.
  void progressed() { failures_in_a_row_ = 0; }

  std::int64_t user_failures() const { return user_failures_; }
  std::int64_t infrastructure_failures() const { return infrastructure_failures_; }

 private:
  std::chrono::milliseconds next_delay();

  RestartPolicy policy_;
  std::int64_t user_failures_ = 0;
  std::int64_t infrastructure_failures_ = 0;
  std::int64_t failures_in_a_row_ = 0;
};

}  // namespace troupe
