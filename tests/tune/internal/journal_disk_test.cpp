#include "tune/internal/journal_disk.hpp"

#include "tests/support/temp_folder.hpp"
#include "tune/internal/journal.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::tune::internal;

namespace {

std::size_t record_count(const std::filesystem::path& path) {
  const auto disk = open_journal_file(path, JournalAccess::read_only);
  REQUIRE(disk);
  const auto end = read_journal(**disk, [](const Record&) { return Result<void>(); });
  REQUIRE(end);
  return static_cast<std::size_t>(end->record_count);
}

}  // namespace

TEST_CASE("journal_disk: a journal on a real disk is read again, and a torn end is cut") {
  const test::TempFolder folder;
  const auto path = folder.path() / "journal";
  for (int round = 0; round < 3; ++round) {
    auto disk = open_journal_file(path, JournalAccess::write);
    REQUIRE(disk);
    auto journal = Journal::open(std::move(*disk), [](const Record&) { return Result<void>(); });
    REQUIRE(journal);
    CHECK(journal->opened_at().record_count == round);
    CHECK(journal->opened_at().torn_bytes == (round == 0 ? 0 : 5));
    REQUIRE(journal->append(TimeUsed{.seconds = double(round)}));
    REQUIRE(journal->sync());
    CHECK(record_count(path) == std::size_t(round) + 1);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) + 5);
  }
}

TEST_CASE("journal_disk: a second writer is refused with the first one's pid, readers are not") {
  const test::TempFolder folder;
  const auto path = folder.path() / "journal";
  auto first = open_journal_file(path, JournalAccess::write);
  REQUIRE(first);
  const auto second = open_journal_file(path, JournalAccess::write);
  REQUIRE_FALSE(second);
  CHECK(code_of(second.error()) == Errc::refused);
  CHECK(text_of(second.error()).find(path.string() + " is being written by ") == 0);
  if (std::filesystem::exists("/proc/locks"))
    CHECK(text_of(second.error()).find("process " + std::to_string(::getpid())) !=
          std::string::npos);
  CHECK(open_journal_file(path, JournalAccess::read_only));
  first = open_journal_file(folder.path() / "other", JournalAccess::write);
  CHECK(open_journal_file(path, JournalAccess::write));
}

TEST_CASE(
    "journal_disk: a link, a folder, a pipe and a missing file are errors that name the path") {
  const test::TempFolder folder;
  std::filesystem::create_symlink("/tmp/elsewhere", folder.path() / "link");
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
  const auto refusal = [&](const std::filesystem::path& path, JournalAccess access) {
    const auto disk = open_journal_file(path, access);
    REQUIRE_FALSE(disk);
    CHECK(text_of(disk.error()).find(path.string()) != std::string::npos);
    if (code_of(disk.error()) == Errc::corrupt)
      CHECK(text_of(disk.error()).find("move it away") != std::string::npos);
    return code_of(disk.error());
  };
  for (const auto access : {JournalAccess::write, JournalAccess::read_only})
    for (const char* name : {"link", "", "pipe"})
      CHECK(refusal(folder.path() / name, access) == Errc::corrupt);
  CHECK(refusal(folder.path() / "none", JournalAccess::read_only) == Errc::not_found);
  CHECK(refusal(folder.path() / "no" / "journal", JournalAccess::write) == Errc::not_found);
}
