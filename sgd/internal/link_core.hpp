#pragma once

#include "sgd/internal/groups.hpp"
#include "sgd/internal/leader_exchange.hpp"
#include "sgd/internal/link.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::sgd::internal {

/// What a link does with what comes, whatever brings it. On one thread. Nothing that another group
/// sends is trusted: what can't be ends the exchange with an error that names the group's ranks.
class LinkCore final : private LeaderExchange::Out {
 public:
  /// The way out, to other leaders.
  class Post {
   public:
    virtual ~Post() = default;
    virtual void chunk(int to_group, const Chunk& chunk) = 0;
    virtual void acknowledge(int to_group) = 0;
    virtual void error(int to_group, const Error& error) = 0;
  };

  LinkCore(Groups groups, std::uint64_t epoch, Post& post);

  void open(Exchange& leader, std::function<void(const Error&)> fail);
  void close();

  // from this group
  void on_begin(const Job& job);
  void on_failure(const Error& error);  ///< tells the others

  // from others; epoch: of what came, if it is another one it is dropped
  void on_note(int from_group, const Note& note);
  void on_chunk(int from_group, std::uint64_t epoch, Chunk chunk);
  void on_acknowledged(int from_group, std::uint64_t epoch);
  void on_error(int from_group, std::uint64_t epoch, const Error& error);
  void on_lost(int group, const std::string& why);

 private:
  void send(int to_group, const Chunk& chunk) override { post_.chunk(to_group, chunk); }
  void acknowledge(int to_group) override { post_.acknowledge(to_group); }
  void joined(Exchange::Ticket ticket) override;
  void end(const Error& error);
  void check(const Result<void>& taken, int from_group);

  Groups groups_;
  std::uint64_t epoch_;
  Post& post_;
  LeaderExchange exchange_;
  Exchange* leader_ = nullptr;
  std::function<void(const Error&)> fail_;
  std::vector<Note> early_;  // before `open`
  std::optional<Error> ended_;
};

/// "rank 3", "ranks 4 to 7".
std::string ranks_of(const Groups& groups, int group);

}  // namespace troupe::sgd::internal
