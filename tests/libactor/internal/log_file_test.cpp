#include "libactor/internal/log_file.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

using namespace troupe::internal;
namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

TEST_CASE(
    "log file: a full one becomes .1, both end with a whole line, the newest lines are kept") {
  const troupe::test::TempFolder folder;
  const fs::path path = folder.path() / "stdout";
  LogFile log(path, 100);
  for (int i = 0; i < 1000; ++i) log.write("line " + std::to_string(i) + "\n");
  CHECK(fs::file_size(path) <= 100);
  CHECK(fs::file_size(path.string() + ".1") <= 100);
  const std::string all = content(path.string() + ".1") + content(path);
  CHECK(all.starts_with("line "));
  CHECK(all.ends_with("line 998\nline 999\n"));
  CHECK(all.size() > 100);
}

TEST_CASE("log file: one write of many times the limit stays within it and keeps the end") {
  const troupe::test::TempFolder folder;
  const fs::path path = folder.path() / "stdout";
  LogFile log(path, 100);
  log.write(std::string(1234, 'x') + "end\n");
  CHECK(fs::file_size(path) <= 100);
  CHECK(fs::file_size(path.string() + ".1") <= 100);
  CHECK(content(path).ends_with("end\n"));
}

TEST_CASE("log file: one that exists is appended to, and counts") {
  const troupe::test::TempFolder folder;
  const fs::path path = folder.path() / "stdout";
  LogFile(path, 20).write("before\n");
  CHECK(content(path) == "before\n");
  LogFile(path, 20).write("after a restart\n");
  CHECK(content(path.string() + ".1") == "before\n");
  CHECK(content(path) == "after a restart\n");
}

TEST_CASE("log file: a folder that is gone costs lines, and a note says how many bytes") {
  const troupe::test::TempFolder folder;
  const fs::path path = folder.path() / "trial" / "stdout";
  LogFile log(path, 1000);
  log.write("lost\n");
  fs::create_directory(folder.path() / "trial");
  log.write("kept\n");
  CHECK(content(path) == "[troupe: the disk did not take 5 bytes here]\nkept\n");
}

TEST_CASE("log file: a full disk costs what it does not take, and the log goes on when it can") {
  const troupe::test::TempFolder folder;
  const fs::path path = folder.path() / "stdout";
  fs::create_symlink("/dev/full", path);
  LogFile log(path, 1000);
  log.write("lost\n");
  log.write(std::string(5000, 'x'));
  fs::remove(path);
  log.write("kept\n");
  CHECK(content(path) == "[troupe: the disk did not take 5005 bytes here]\nkept\n");
}
