#include "libactor/internal/zygote_protocol.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::zygote_event;
using namespace std::chrono_literals;

namespace {

WorkerStart some_start() {
  return {.lease = 0xfedcba9876543210,
          .incarnation = 3,
          .entry = "8MyTrials",
          .id = "a1b2c_00003",
          .name = "MyTrials_a1b2c_00003",
          .directory = "/tmp/some folder",
          .resources = {.cpus = 0.5,
                        .gpus = 2,
                        .memory_bytes = 1 << 30,
                        .custom = {{"licences", 1}, {"", 0.1}}},
          .threads = 7,
          .seed = ~0ull,
          .devices = "0,3",
          .environment = {{"PATH", "/bin"}, {"EMPTY", ""}},
          .forward_output = true};
}

}  // namespace

TEST_CASE("zygote protocol: a worker's start comes back whole, with what is not said as not said") {
  for (WorkerStart start : {some_start(), WorkerStart{}}) {
    const auto order = decode_order(encode(ZygoteOrder(StartOrder{start})));
    REQUIRE(order);
    CHECK((std::get<StartOrder>(*order).start == start));
  }
}

TEST_CASE("zygote protocol: every event comes back") {
  const auto back = [](const ZygoteNote& note) { return *decode_note(encode(note)); };
  CHECK(std::get<Ready>(back(Ready{17, {"a", ""}})).threads == std::vector<std::string>{"a", ""});
  CHECK(std::get<Ready>(back(Ready{17, {}})).pid == 17);
  CHECK(std::get<Warned>(back(Warned{"w"})).text == "w");
  CHECK(std::get<Started>(back(Started{5, 99})).pid == 99);
  const auto failed = std::get<StartFailed>(back(StartFailed{5, true, "why"}));
  CHECK(failed.hopeless);
  CHECK(failed.text == "why");
  CHECK(std::get<LoadingNote>(back(LoadingNote{"data"})).name == "data");
  const auto output = std::get<Output>(back(Output{5, "a\nb\n"}));
  CHECK(output.lines == "a\nb\n");
  const auto exited = std::get<Exited>(back(Exited{5, {.signal = 9}}));
  CHECK(exited.lease == 5);
  CHECK(exited.exit == Exit{.signal = 9});
}

TEST_CASE("zygote protocol: a frame cut anywhere, or with something behind it, is refused") {
  const std::string order = encode(ZygoteOrder(StartOrder{some_start()}));
  const std::string note = encode(ZygoteNote(Ready{17, {"a", "b"}}));
  for (std::size_t size = 0; size < order.size(); ++size)
    CHECK_FALSE(decode_order(order.substr(0, size)));
  for (std::size_t size = 0; size < note.size(); ++size)
    CHECK_FALSE(decode_note(note.substr(0, size)));
  CHECK_FALSE(decode_order(order + "x"));
  CHECK_FALSE(decode_note(note + "x"));
  CHECK_FALSE(decode_order(FrameWriter().number(99).take()));
  CHECK_FALSE(decode_note(FrameWriter().number(~0ull).take()));
}

TEST_CASE(
    "zygote protocol: a lease is written with a fixed width, so that it can be set in place") {
  CHECK(lease_text("abc", 0) == "abc.0000000000000000");
  CHECK(lease_text("abc", ~0ull) == "abc.ffffffffffffffff");
}
