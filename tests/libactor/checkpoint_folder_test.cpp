#include "libactor/checkpoint_folder.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <fstream>

using namespace troupe;
using troupe::test::TempFolder;
namespace fs = std::filesystem;

namespace {

void commit(const fs::path& folder, std::int64_t iteration) {
  auto out = unwrap(CheckpointWriter::begin(folder, {.iteration = iteration}));
  out->text("note", "hello");
  REQUIRE(out->commit());
}

void damage(const fs::path& folder) {
  const auto offset = CheckpointReader::open(folder)->find("note")->offset;
  std::fstream file(folder / "checkpoint", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put('j');
}

}  // namespace

TEST_CASE("newest_valid_checkpoint: the iteration decides, neither name nor time") {
  const TempFolder folder;
  commit(folder / "a", 12);
  commit(folder / "b", 9);
  fs::last_write_time(folder / "a/checkpoint",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto scan = newest_valid_checkpoint(folder.path());
  REQUIRE(scan.newest);
  CHECK(scan.newest->info().iteration == 12);
  CHECK(scan.refused.empty());
}

TEST_CASE("newest_valid_checkpoint: one that is ahead of the journal is passed over in silence") {
  const TempFolder folder;
  commit(folder / "a", 4);
  commit(folder / "b", 6);
  const auto scan = newest_valid_checkpoint(folder.path(), 5);
  REQUIRE(scan.newest);
  CHECK(scan.newest->info().iteration == 4);
  CHECK(scan.refused.empty());
}

TEST_CASE("newest_valid_checkpoint: a damaged one is passed over and named") {
  const TempFolder folder;
  commit(folder / "old", 1);
  commit(folder / "new", 2);
  damage(folder / "new");
  fs::create_directory(folder / "empty");
  fs::create_directory_symlink(folder / "old", folder / "link");
  std::ofstream(folder / "result.json") << "{}";
  const auto scan = newest_valid_checkpoint(folder.path());
  REQUIRE(scan.newest);
  CHECK(scan.newest->folder() == folder / "old");
  REQUIRE(scan.refused.size() == 1);
  CHECK(text_of(scan.refused[0]).find("'note': checksum differs") != std::string::npos);
}

TEST_CASE("newest_valid_checkpoint: a folder without one, and none, give nothing") {
  const TempFolder folder;
  CHECK_FALSE(newest_valid_checkpoint(folder.path()).newest);
  CHECK_FALSE(newest_valid_checkpoint(folder / "none").newest);
}

TEST_CASE("remove_checkpoint: it is gone, and what a link in its place points to stays") {
  const TempFolder folder;
  commit(folder / "c", 1);
  REQUIRE(remove_checkpoint(folder / "c"));
  CHECK(fs::is_empty(folder.path()));
  CHECK(code_of(remove_checkpoint(folder / "c").error()) == Errc::not_found);

  fs::create_directory(folder / "canary");
  std::ofstream(folder / "canary/file") << "alive";
  fs::create_directory_symlink(folder / "canary", folder / "c");
  REQUIRE(remove_checkpoint(folder / "c"));
  CHECK(fs::exists(folder / "canary/file"));
  CHECK_FALSE(fs::is_symlink(folder / "c"));
}

TEST_CASE(
    "clean_checkpoints: finishes a removal that was cut short; a living writer's work stays") {
  const TempFolder folder;
  commit(folder / "c", 1);
  fs::create_directory(folder / "canary");
  std::ofstream(folder / "canary/file") << "alive";
  fs::create_directory(folder / ".trash-0011");
  fs::create_directory_symlink(folder / "canary", folder / ".trash-0011/link");
  fs::create_directory(folder / "d.tmp-0011");
  auto writer = unwrap(CheckpointWriter::begin(folder / "e", {.iteration = 2}));
  REQUIRE(clean_checkpoints(folder.path()));
  CHECK_FALSE(fs::exists(folder / ".trash-0011"));
  CHECK_FALSE(fs::exists(folder / "d.tmp-0011"));
  CHECK(fs::exists(folder / "canary/file"));
  CHECK(CheckpointReader::open(folder / "c"));
  REQUIRE(writer->commit());
  CHECK(newest_valid_checkpoint(folder.path()).newest->info().iteration == 2);
}

TEST_CASE("checkpoint_folder: a name says its iteration, and nothing else is such a name") {
  CHECK(checkpoint_name(12) == "checkpoint_000012");
  for (const std::int64_t iteration : {0L, 7L, 999'999L, 1'000'000L, 9'223'372'036'854'775'807L})
    CHECK(iteration_of_name(checkpoint_name(iteration)) == iteration);
  CHECK(iteration_of_name("checkpoint_5") == 5);
  for (const char* other : {"checkpoint_", "checkpoint_-1", "checkpoint_4.tmp-x", "checkpoint_4 ",
                            "4", "Checkpoint_4", "checkpoint_9223372036854775808", ""})
    CHECK_FALSE(iteration_of_name(other));
}
