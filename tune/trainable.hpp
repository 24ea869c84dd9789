#pragma once

#include "libactor/checkpoint.hpp"
#include "libactor/context.hpp"
#include "libactor/entry.hpp"
#include "tune/config.hpp"
#include "tune/metrics.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

namespace troupe {
class Worker;
}

namespace troupe::tune {

using troupe::CheckpointReader;
using troupe::CheckpointWriter;

/// What one trial runs, step by step. One object lives in one worker process, and all members are
/// called on that process's main thread, in the order setup, [load_checkpoint], step,
/// [save_checkpoint], step, …, cleanup.
///
/// Whatever a member throws ends the trial with that text in `error.txt` and counts against
/// `max_failures`.
class Trainable {
 public:
  virtual ~Trainable() = default;

  /// Called once, before everything else.
  virtual void setup(const Config& config) { (void)config; }
  /// One iteration: an epoch, a thousand batches. Longer than 60 s is fine; between one and 30 s is
  /// comfortable.
  virtual Metrics step() = 0;
  /// Override both and trials survive the death of their process, and are saved automatically.
  virtual void save_checkpoint(CheckpointWriter& out) { (void)out; }
  virtual void load_checkpoint(const CheckpointReader& in) { (void)in; }
  /// Called once after the last step, also after STOP; not when the process dies.
  virtual void cleanup() {}

  /// What this trial knows of itself. Not in the constructor: the first moment is `setup`.
  const Context& context() const { return *context_; }
  void set_context(const Context* context) { context_ = context; }

 private:
  const Context* context_ = nullptr;
};

/// What a function trainable talks to: `while (…) if (!session.report({{"loss", x}})) return;`
class Session {
 public:
  class Impl;
  explicit Session(Impl& impl) : impl_(impl) {}

  /// One result; blocks until it is decided on. False: stop, so return. The function's return ends
  /// the trial.
  bool report(Metrics metrics);
  /// Writes a checkpoint that belongs to the next `report`.
  void save_checkpoint(const std::function<void(CheckpointWriter&)>& write);
  /// What to go on from after a restart; nullptr at the beginning.
  const CheckpointReader* checkpoint() const;
  const Context& context() const;

 private:
  Impl& impl_;
};

/// A trainable as a value: what `tune::run` needs to know to start it in another process.
struct TrainableSpec {
  std::string entry = {};  ///< in the table of entries
  std::string name = {};   ///< "MnistTrainable", for folders and tables
  Config config = {};      ///< defaults under the run's config
  std::optional<Resources> resources =
      {};                     ///< fixed by the trainable; `resources_per_trial` is then an error
  std::string argument = {};  ///< what the entry's `serve_class` gives to `make`
};

namespace internal {

using MakeTrainable = std::function<std::unique_ptr<Trainable>(const std::string& argument)>;

int serve_class(Worker& worker, const MakeTrainable& make, bool can_save);
int serve_function(Worker& worker, void (*body)(Session&, const Config&));

/// Whether T overrides `save_checkpoint`: only then there is something to save.
template <class T>
inline constexpr bool can_save =
    !std::is_same_v<decltype(&T::save_checkpoint), void (Trainable::*)(CheckpointWriter&)>;

template <class T>
int serve(Worker& worker) {
  return serve_class(
      worker, [](const std::string&) { return std::make_unique<T>(); }, can_save<T>);
}

template <auto Function>
struct FunctionKey {};

template <auto Function>
int serve_it(Worker& worker) {
  return serve_function(worker, Function);
}

/// "parabola" from the compiler's spelling of a function that is a template argument.
std::string readable_function_name(std::string_view pretty_function);

}  // namespace internal

/// A class that derives from Trainable and has a default constructor.
template <class T>
requires std::is_base_of_v<Trainable, T> TrainableSpec trainable() {
  (void)Registration<&internal::serve<T>, T>::done;
  return {.entry = entry_name<T>(), .name = readable_type_name(typeid(T))};
}

/// A function `void f(tune::Session&, const tune::Config&)`.
template <auto Function>
requires std::is_convertible_v<decltype(Function), void (*)(Session&, const Config&)> TrainableSpec
trainable() {
  using Key = internal::FunctionKey<Function>;
  (void)Registration<&internal::serve_it<Function>, Key>::done;
  return {.entry = entry_name<Key>(),
          .name = internal::readable_function_name(__PRETTY_FUNCTION__)};
}

}  // namespace troupe::tune
