#include "libactor/file.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

using namespace troupe;
using troupe::test::TempFolder;
namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t count_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("write_atomically: replaces the whole file and leaves nothing beside it") {
  const TempFolder folder;
  REQUIRE(write_atomically(folder / "a", "long old content"));
  REQUIRE(write_atomically(folder / "a", "new", {.durable = false}));
  CHECK(content(folder / "a") == "new");
  CHECK(count_in(folder.path()) == 1);
}

TEST_CASE("write_atomically: a link in the file's place is replaced and what it points to stays") {
  const TempFolder folder;
  std::ofstream(folder / "canary") << "alive";
  fs::create_symlink(folder / "canary", folder / "a");
  REQUIRE(write_atomically(folder / "a", "new"));
  CHECK_FALSE(fs::is_symlink(folder / "a"));
  CHECK(content(folder / "canary") == "alive");
}

TEST_CASE("write_atomically: when the disk is full the old file stays and the reason is told") {
  const TempFolder folder;
  REQUIRE(write_atomically(folder / "a", "old"));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto written = write_atomically(folder / "a", std::string(5000, 'x'));
    ::_exit(!written && code_of(written.error()) == Errc::io &&
                    text_of(written.error()).find("File too large") != std::string::npos
                ? 0
                : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(content(folder / "a") == "old");
  CHECK(count_in(folder.path()) == 1);
}

TEST_CASE("read_bounded: refuses what is too long, a link, a pipe, and tells a missing file") {
  const TempFolder folder;
  std::ofstream(folder / "a") << "12345";
  fs::create_symlink(folder / "a", folder / "link");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(*read_bounded(folder / "a", 5) == "12345");
  CHECK(code_of(read_bounded(folder / "a", 4).error()) == Errc::corrupt);
  CHECK(code_of(read_bounded(folder / "link", 5).error()) == Errc::corrupt);
  CHECK(code_of(read_bounded(folder / "pipe", 5).error()) == Errc::corrupt);
  CHECK(code_of(read_bounded(folder / "none", 5).error()) == Errc::not_found);
}

TEST_CASE("open_folder: a link is refused, with and without a slash at its end") {
  const TempFolder folder;
  fs::create_directory(folder / "real");
  fs::create_symlink(folder / "real", folder / "link");
  CHECK(open_folder(folder / "real/"));
  CHECK(code_of(open_folder(folder / "link").error()) == Errc::corrupt);
  CHECK(code_of(open_folder(folder / "link/").error()) == Errc::corrupt);
}

TEST_CASE("remove_tree: removes a tree and the links in it, not what they point to") {
  const TempFolder folder;
  fs::create_directories(folder / "canary");
  std::ofstream(folder / "canary/file") << "alive";
  fs::create_directories(folder / "tree/a/b");
  std::ofstream(folder / "tree/a/b/file") << "x";
  fs::create_directory_symlink(folder / "canary", folder / "tree/a/link");
  REQUIRE(remove_tree(folder / "tree/"));
  CHECK_FALSE(fs::exists(folder / "tree"));
  CHECK(content(folder / "canary/file") == "alive");

  fs::create_directory_symlink(folder / "canary", folder / "link");
  REQUIRE(remove_tree(folder / "link"));
  CHECK_FALSE(fs::is_symlink(folder / "link"));
  CHECK(content(folder / "canary/file") == "alive");
  CHECK(remove_tree(folder / "was never there"));
}

TEST_CASE("remove_tree: a tree of thousands of folders inside each other is an error, no crash") {
  const TempFolder folder;
  Fd at = unwrap(open_folder(folder.path()));
  for (int depth = 0; depth < 2000; ++depth) {
    REQUIRE(::mkdirat(at.value(), "d", 0700) == 0);
    at = Fd(::openat(at.value(), "d", O_RDONLY | O_DIRECTORY));
    REQUIRE(at);
  }
  const auto removed = remove_tree(folder / "d");
  REQUIRE_FALSE(removed);
  CHECK(text_of(removed.error()).find("folders inside each other") != std::string::npos);
  fs::remove_all(folder.path());
}
