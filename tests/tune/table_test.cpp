#include "tune/table.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

using namespace troupe;
using namespace troupe::tune;

namespace {

const Table kTable{.columns = {"id", "config/lr", "=note"},
                   .rows = {{"a_0", -0.5, "=cmd(\"x\")"}, {"a_1", Value(), "+1"}}};

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE(
    "table: CSV keeps texts as they are, and for spreadsheets disarms what looks like a formula") {
  const test::TempFolder temp;
  unwrap(kTable.to_csv(temp / "a.csv"));
  CHECK(read(temp / "a.csv") == "id,config/lr,=note\na_0,-0.5,\"=cmd(\"\"x\"\")\"\na_1,,+1\n");
  unwrap(kTable.to_csv(temp / "b.csv", {.for_spreadsheets = true}));
  CHECK(read(temp / "b.csv") == "id,config/lr,'=note\na_0,-0.5,\"'=cmd(\"\"x\"\")\"\na_1,,'+1\n");
}

TEST_CASE("table: a folder that is not there is an error with its name") {
  const auto written = kTable.to_csv("/nonexistent/x.csv");
  REQUIRE_FALSE(written);
  CHECK(text_of(written.error()).find("/nonexistent") != std::string::npos);
}

TEST_CASE("table: cells are found by row and column") {
  CHECK(*kTable.find(0, "config/lr") == Value(-0.5));
  CHECK(kTable.find(0, "lr") == nullptr);
  CHECK(kTable.find(2, "id") == nullptr);
  CHECK(kTable.text().find("| a_0  |        -0.5 |") != std::string::npos);
}
