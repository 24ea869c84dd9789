#include "libactor/init.hpp"

#include "libactor/entry.hpp"
#include "libactor/internal/caf_fixes.hpp"
#include "libactor/internal/cluster_impl.hpp"
#include "libactor/internal/process.hpp"
#include "libactor/internal/worker_main.hpp"
#include "libactor/internal/zygote_main.hpp"
#include "libactor/limits.hpp"
#include "libactor/log.hpp"
#include "libactor/output.hpp"

#include <malloc.h>
#include <sys/resource.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace troupe {
namespace {

using namespace std::string_view_literals;

/// Exit codes of the command line, nodes/README.md.
constexpr int kUsage = 2;
constexpr int kCannotReach = 3;
constexpr int kRefused = 4;

int exit_code_of(const Error& error) {
  switch (code_of(error)) {
    case Errc::bad_request: return kUsage;
    case Errc::refused: return kRefused;
    default: return kCannotReach;
  }
}

/// Takes "--name value" and "--name=value" out of argv.
class Arguments {
 public:
  Arguments(int& argc, char** argv) : argc_(argc), argv_(argv) {}

  Result<std::optional<std::string>> take(std::string_view name) {
    for (int i = 1; i < argc_; ++i) {
      const std::string_view word = argv_[i];
      if (word == "--"sv) break;
      if (word == name) {
        if (i + 1 >= argc_)
          return make_error(Errc::bad_request,
                            std::string(name) + " needs a value: " + std::string(name) + " VALUE");
        std::string value = argv_[i + 1];
        if (value.empty()) return make_error(Errc::bad_request, std::string(name) + " is empty");
        remove(i, 2);
        return std::optional(std::move(value));
      }
      if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
        std::string value(word.substr(name.size() + 1));
        if (value.empty()) return make_error(Errc::bad_request, std::string(name) + " is empty");
        remove(i, 1);
        return std::optional(std::move(value));
      }
    }
    return std::optional<std::string>();
  }

  bool take_flag(std::string_view name) {
    for (int i = 1; i < argc_; ++i)
      if (argv_[i] == name) {
        remove(i, 1);
        return true;
      }
    return false;
  }

  std::optional<std::string> find_prefix(std::string_view prefix) const {
    for (int i = 1; i < argc_ && argv_[i] != "--"sv; ++i)
      if (std::string_view(argv_[i]).starts_with(prefix)) return std::string(argv_[i]);
    return std::nullopt;
  }

 private:
  void remove(int at, int count) {
    for (int i = at; i + count <= argc_; ++i)
      argv_[i] = argv_[i + count];  // the null at the end too
    argc_ -= count;
  }

  int& argc_;
  char** argv_;
};

template <class Number>
Result<Number> number_of(std::string_view name, const std::string& text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0 &&
      value <= limits::kPretended)
    return value;
  return make_error(Errc::bad_request, std::string(name) + " is '" + text + "', a " +
                                           (std::is_integral_v<Number> ? "whole " : "") +
                                           "number from 0 to " +
                                           std::to_string(limits::kPretended) + " is wanted");
}

/// What the command line says beside what the program says.
Result<void> read_arguments(Arguments& arguments, InitOptions& options) {
  const auto text = [&](std::string_view name, std::string& into) -> Result<void> {
    auto taken = arguments.take(name);
    if (!taken) return taken.error();
    if (*taken) into = **taken;
    return {};
  };
  if (auto done = text("--address", options.address); !done) return done;
  if (auto done = text("--token-file", options.token_file); !done) return done;
  if (arguments.take_flag("--troupe-strict")) options.strict = true;
  const auto number = [&](std::string_view name, auto& into) -> Result<void> {
    auto taken = arguments.take(name);
    if (!taken) return taken.error();
    if (!*taken) return {};
    const auto value = number_of<std::decay_t<decltype(*into)>>(name, **taken);
    if (!value) return value.error();
    into = *value;
    return {};
  };
  if (auto done = number("--troupe-cpus", options.cpus); !done) return done;
  if (auto done = number("--troupe-gpus", options.gpus); !done) return done;
  if (auto unknown = arguments.find_prefix("--troupe-"))
    return make_error(Errc::bad_request,
                      "there is no option " + *unknown +
                          "; there are --troupe-strict, --troupe-cpus N and --troupe-gpus N");
  return {};
}

internal::Machine machine_of(const InitOptions& options) {
  auto machine = internal::detect_machine();
  if (options.cpus) machine.cpus = {.cpus = *options.cpus, .source = "--troupe-cpus"};
  if (options.gpus) machine.gpus = internal::fake_gpus(*options.gpus);
  return machine;
}

Result<Cluster> start_driver(InitOptions options) {
  if (options.address.empty())
    if (const char* address = std::getenv("TROUPE_ADDRESS")) options.address = address;
  if (!options.token_file.empty())
    return make_error(Errc::refused,
                      "token file '" + options.token_file +
                          "': this version runs on one machine only; leave --token-file away");
  if (!options.address.empty())
    return make_error(Errc::refused,
                      "address '" + options.address +
                          "': this version runs on one machine only; leave --address and "
                          "TROUPE_ADDRESS away to use this one");
  if (auto sound = internal::caf_fixes_self_test(); !sound)
    return with_context(sound.error(), "init");
  struct rlimit descriptors = {};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur < limits::kDescriptors)
    return make_error(Errc::bad_request,
                      "this process may open " + std::to_string(descriptors.rlim_cur) +
                          " files, at least " + std::to_string(limits::kDescriptors) +
                          " are needed; raise it by ulimit -n");
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error of write, not our end
  auto impl = fence(Errc::io, [&] {
    return unwrap(
        internal::start_cluster({.machine = machine_of(options), .strict = options.strict}));
  });
  if (!impl) return with_context(impl.error(), "init");
  return Cluster(std::move(*impl));
}

/// Where addresses are few (ulimit -v), threads need them for their stacks: an arena of the
/// allocator, which each would get, takes 64 MiB.
void spare_addresses() {
  struct rlimit addresses = {};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY &&
      !std::getenv("MALLOC_ARENA_MAX"))
    ::mallopt(M_ARENA_MAX, 1);
}

/// Serves and never returns when this process is a zygote or a worker.
void serve_role() {
  spare_addresses();
  const auto role = internal::role_from_environment();
  if (role.kind == internal::ProcessRole::Kind::driver) return;
  if (auto sound = internal::caf_fixes_self_test(); !sound) {
    std::fprintf(stderr, "troupe: %s\n", describe(sound.error()).c_str());
    std::_Exit(1);
  }
  if (role.kind == internal::ProcessRole::Kind::zygote)
    internal::zygote_main(role.fd, &internal::worker_main);
  internal::worker_main_from_environment(role.fd, &internal::worker_main);
}

Cluster or_exit(Result<Cluster> cluster) {
  if (cluster) return std::move(*cluster);
  std::fprintf(stderr, "troupe: %s\n", text_of(cluster.error()).c_str());
  std::exit(exit_code_of(cluster.error()));
}

}  // namespace

Result<Cluster> try_init(int& argc, char** argv, InitOptions options) {
  serve_role();
  guard_output();
  start_log("driver");
  Arguments arguments(argc, argv);
  if (auto read = read_arguments(arguments, options); !read) return read.error();
  return start_driver(std::move(options));
}

Cluster init(int& argc, char** argv) { return init(argc, argv, InitOptions{}); }

Cluster init(int& argc, char** argv, InitOptions options) {
  return or_exit(try_init(argc, argv, std::move(options)));
}

Cluster init(InitOptions options) {
  serve_role();
  guard_output();
  start_log("driver");
  return or_exit(start_driver(std::move(options)));
}

}  // namespace troupe
