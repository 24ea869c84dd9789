#include "tune/trainable.hpp"

#include "tune/internal/trial_main.hpp"

namespace troupe::tune {

/// A function trainable's session: reports go straight through.
class Session::Impl {
 public:
  explicit Impl(internal::TrialMain& main) : main(main) {}

  internal::TrialMain& main;
  bool stopped = false;
};

bool Session::report(Metrics metrics) {
  if (impl_.stopped) return false;
  const auto order =
      unwrap(impl_.main.report(std::move(metrics), true, impl_.main.has_unpublished()));
  impl_.main.publish_checkpoint();
  impl_.stopped = order.decision != Decision::proceed || context().cancelled();
  return !impl_.stopped;
}

void Session::save_checkpoint(const std::function<void(CheckpointWriter&)>& write) {
  unwrap(impl_.main.write_checkpoint(impl_.main.iteration() + 1, write));
}

const CheckpointReader* Session::checkpoint() const { return impl_.main.checkpoint(); }

const Context& Session::context() const { return impl_.main.context(); }

namespace internal {
namespace {

/// Runs the user's beginning. A ConfigError, or data that is not there, is told at once: in the
/// first wave it ends the experiment.
Result<void> set_up(TrialMain& main, const std::function<void()>& body) {
  return fence(Errc::user_code, [&] {
    try {
      body();
    } catch (const ConfigError& e) {
      main.config_error(e.what());
      throw;
    } catch (const Exception& e) {  // what every trial lacks: a data set that is not there
      if (code_of(e.error()) == Errc::not_found || code_of(e.error()) == Errc::bad_request)
        main.config_error(text_of(e.error()));
      throw;
    }
  });
}

}  // namespace

int serve_class(Worker& worker, const MakeTrainable& make, bool can_save) {
  TrialMain main(worker);
  if (auto begun = main.begin(); !begun) return main.fail(begun.error());
  std::unique_ptr<Trainable> trainable;
  auto done = set_up(main, [&] {
    trainable = make(main.trainable_argument());
    trainable->set_context(&main.context());
    trainable->setup(main.config());
  });
  if (!done) return main.fail(with_context(done.error(), "setup"));
  main.note_unread_keys();
  if (main.checkpoint()) {
    auto loaded = fence(Errc::user_code, [&] { trainable->load_checkpoint(*main.checkpoint()); });
    if (!loaded) return main.fail(with_context(loaded.error(), "load_checkpoint"));
  }
  main.ready(true);

  for (;;) {
    auto metrics = fence(Errc::user_code, [&] { return trainable->step(); });
    if (!metrics) return main.fail(with_context(metrics.error(), "step"));
    const auto order = main.report(std::move(*metrics), false, false);
    if (!order) return main.fail(order.error());
    if (main.save_due(*order, can_save)) {
      auto saved = main.write_checkpoint(
          main.iteration(), [&](CheckpointWriter& out) { trainable->save_checkpoint(out); });
      if (!saved) return main.fail(saved.error());
      main.publish_checkpoint();
    }
    if (order->decision != Decision::proceed) break;
  }
  if (auto settled = main.settle(); !settled) return main.fail(settled.error());
  auto cleaned = fence(Errc::user_code, [&] { trainable->cleanup(); });
  if (!cleaned) return main.fail(with_context(cleaned.error(), "cleanup"));
  return 0;
}

int serve_function(Worker& worker, void (*body)(Session&, const Config&)) {
  TrialMain main(worker);
  if (auto begun = main.begin(); !begun) return main.fail(begun.error());
  main.ready(false);
  Session::Impl impl(main);
  Session session(impl);
  auto done = set_up(main, [&] { body(session, main.config()); });
  if (done) done = main.settle();
  if (!done) return main.fail(done.error());
  return 0;
}

std::string readable_function_name(std::string_view pretty_function) {
  // "… trainable() [with auto Function = ns::parabola; …]" by g++, "[Function = &ns::parabola]" by
  // clang.
  constexpr std::string_view mark = "Function = ";
  auto at = pretty_function.find(mark);
  if (at == std::string_view::npos) return "function";
  auto name = pretty_function.substr(at + mark.size());
  name = name.substr(0, name.find_first_of(";]"));
  if (const auto brace = name.find('('); brace != std::string_view::npos && brace > 0)
    name = name.substr(0, brace);
  if (const auto colon = name.rfind("::"); colon != std::string_view::npos)
    name = name.substr(colon + 2);
  if (!name.empty() && name.front() == '&') name.remove_prefix(1);
  return std::string(name);
}

}  // namespace internal
}  // namespace troupe::tune
