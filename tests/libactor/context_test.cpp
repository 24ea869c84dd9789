#include "libactor/context.hpp"

#include "libactor/internal/context_state.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

using namespace troupe;

TEST_CASE("context: tells what its maker wrote, also what changes while it runs") {
  auto state = std::make_shared<Context::State>();
  state->id = "a1b2c_00003";
  state->resources = {.cpus = 2};
  state->threads = 2;
  state->seed = 17;
  const Context context(state);
  CHECK(context.id() == "a1b2c_00003");
  CHECK(context.resources().text() == "cpus=2");
  CHECK(context.threads() == 2);
  CHECK(context.seed() == 17);
  CHECK(context.device_index() == -1);
  CHECK(context.iteration() == 0);
  CHECK_FALSE(context.cancelled());
  state->iteration = 4;
  state->cancelled = true;
  CHECK(context.iteration() == 4);
  CHECK(context.cancelled());
  CHECK(context.parameter("no such").empty());
}

TEST_CASE("context: progress is the last one told, without a total it is a count") {
  auto state = std::make_shared<Context::State>();
  const Context context(state);
  CHECK(state->progress_text().empty());
  context.progress(17, 938, "batch");
  CHECK(state->progress_text() == "17/938 batch");
  context.progress(18, 0, "batch");
  CHECK(state->progress_text() == "18 batch");
  context.progress(2, 3, "");
  CHECK(state->progress_text() == "2/3");
}

TEST_CASE("context: progress and log may come from any thread") {
  auto state = std::make_shared<Context::State>();
  std::atomic<int> line_count{0};
  state->log_sink = [&line_count](std::string_view sentence) {
    if (sentence == "a sentence") ++line_count;
  };
  const Context context(state);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&context] {
      for (int k = 1; k <= 100; ++k) {
        context.progress(k, 100, "batch");
        context.log("a sentence");
      }
    });
  while (state->progress_text().empty()) std::this_thread::yield();
  for (auto& thread : threads) thread.join();
  CHECK(line_count == 400);
  CHECK(state->progress_text() == "100/100 batch");
}
