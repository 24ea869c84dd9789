#include "libactor/peer.hpp"

#include <doctest/doctest.h>

#include <caf/all.hpp>

#include <string>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

PeerCredentials member(const std::vector<PeerCredentials>& group, std::size_t index) {
  return group[index];
}

/// Answers with what it is sent.
class Echo {
 public:
  explicit Echo(PeerSystem& system)
      : actor_(system.actors().spawn(
            []() -> caf::behavior { return {[](const std::string& text) { return text; }}; })) {}
  ~Echo() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;
  const caf::actor& actor() const { return actor_; }

 private:
  caf::actor actor_;
};

std::string ask(PeerSystem& system, const caf::actor& other, const std::string& text) {
  std::string answer;
  caf::scoped_actor self(system.actors());
  self->request(other, 5s, text)
      .receive([&](const std::string& said) { answer = said; },
               [&](const caf::error& error) { answer = describe(error); });
  return answer;
}

std::string refusal(const PeerCredentials& own, std::uint16_t port, const std::string& name) {
  auto system = PeerSystem::make(own);
  REQUIRE(system);
  auto dialled = (*system)->dial("127.0.0.1", port, name);
  return dialled ? "connected" : describe(dialled.error());
}

}  // namespace

TEST_CASE("peer: members of a group reach each other, and know whom they dial") {
  const auto group = make_group_credentials({"one", "two", "three"});
  REQUIRE(group);
  auto first = PeerSystem::make(member(*group, 0));
  auto second = PeerSystem::make(member(*group, 1));
  REQUIRE(first);
  REQUIRE(second);
  const Echo echo(**first);
  const auto port = (*first)->listen("127.0.0.1", echo.actor());
  REQUIRE(port);
  const auto other = (*second)->dial("127.0.0.1", *port, "one");
  REQUIRE_MESSAGE(other, (other ? "" : describe(other.error())));
  CHECK(ask(**second, *other, "hello") == "hello");
  CHECK(refusal(member(*group, 2), *port, "two").find("its name is \"one\"") != std::string::npos);
}

TEST_CASE("peer: a member of another group is let in nowhere") {
  const auto group = make_group_credentials({"one"});
  const auto others = make_group_credentials({"one"});
  REQUIRE(group);
  REQUIRE(others);
  auto first = PeerSystem::make(member(*group, 0));
  REQUIRE(first);
  const Echo echo(**first);
  const auto port = (*first)->listen("127.0.0.1", echo.actor());
  REQUIRE(port);
  CHECK(refusal(member(*others, 0), *port, "one").starts_with("refused: "));
}

TEST_CASE("peer: credentials that are none, and names that can't be, are told") {
  CHECK(describe(PeerSystem::make({.member = "x"}).error()).find("credentials of x") !=
        std::string::npos);
  CHECK_FALSE(make_group_credentials({"a b"}));
  const auto group = make_group_credentials({"one"});
  REQUIRE(group);
  CHECK(to_string(member(*group, 0)) == "PeerCredentials of one");
}

TEST_CASE("peer: nobody listens there: told at once") {
  const auto group = make_group_credentials({"one", "two"});
  REQUIRE(group);
  CHECK(refusal(member(*group, 0), 1, "two").find("nobody listens there") != std::string::npos);
}
