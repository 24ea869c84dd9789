#include "tune/internal/result_files.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

using namespace troupe;
using namespace troupe::tune;
using namespace troupe::tune::internal;
namespace fs = std::filesystem;

namespace {

const Config kConfig{{"lr", 0.1}, {"augment", {{"flip", true}}}};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::unique_ptr<TrialFiles> open(const fs::path& folder) {
  return unwrap(TrialFiles::open(folder, kConfig));
}

TrialResult row_of(std::int64_t iteration, double loss = 0.5) {
  return {{"loss", loss}, {"training_iteration", iteration}};
}

/// While it exists, no file of this process can grow beyond `bytes`: as on a full disk, a write is
/// short or fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uintmax_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

std::size_t open_descriptors() {
  const fs::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace

TEST_CASE("result files: params are sorted; a row is nested, the config at Ray's place") {
  const test::TempFolder temp;
  const auto files = open(temp / "t");
  CHECK(read(temp / "t/params.json") ==
        "{\n  \"augment\": {\n    \"flip\": true\n  },\n  \"lr\": 0.1\n}\n");
  unwrap(
      files->append({{"a/b", 1}, {"c", "x"}, {"a/d", 2.0}, {"node_ip", "::1"}, {"trial_id", "t"}}));
  CHECK(
      read(temp / "t/result.json") ==
      R"({"a":{"b":1,"d":2.0},"c":"x","node_ip":"::1","config":{"augment":{"flip":true},"lr":0.1},)"
      R"("trial_id":"t"})"
      "\n");
  CHECK(read(temp / "t/progress.csv") == "a/b,c,a/d,node_ip,trial_id\n1,x,2.0,::1,t\n");
}

TEST_CASE("result files: late columns are kept, and earlier rows have empty cells there") {
  const test::TempFolder temp;
  const auto files = open(temp / "t");
  unwrap(files->append({{"a", 1}}));
  unwrap(files->append({{"a", 2}, {"b", "x,\"y\"\nz"}}));
  unwrap(files->append({{"c", {{"d", 4}}}}));
  unwrap(files->append({{"a", 5}}));
  CHECK(read(temp / "t/progress.csv") == "a,b,c/d\n1,,\n2,\"x,\"\"y\"\"\nz\",\n,,4\n5,,\n");
}

TEST_CASE("result files: NaN and infinities are null in JSON, words in CSV, and read back") {
  const test::TempFolder temp;
  const auto files = open(temp / "t");
  const double inf = std::numeric_limits<double>::infinity();
  const TrialResult row{{"loss", std::nan("")}, {"g", {{"norm", -inf}}}, {"list", list({1, inf})}};
  unwrap(files->append(row));
  CHECK(read(temp / "t/result.json")
            .starts_with(R"({"loss":null,"g":{"norm":null},"list":[1,null],)"));
  CHECK(read(temp / "t/result.json")
            .ends_with(R"("nan_keys":{"loss":"nan","g/norm":"-inf","list/1":"inf"}})"
                       "\n"));
  CHECK(read(temp / "t/progress.csv") == "loss,g/norm,list\nnan,-inf,\"[1,null]\"\n");
  CHECK(unwrap(read_results(temp / "t")) == std::vector<TrialResult>{row});
}

TEST_CASE("result files: after a restart rows are appended under the one header") {
  const test::TempFolder temp;
  unwrap(open(temp / "t")->append(row_of(1)));
  {
    const auto files = open(temp / "t");
    CHECK(files->last_iteration() == 1);
    unwrap(files->append(row_of(2)));
  }
  CHECK(read(temp / "t/progress.csv") == "loss,training_iteration\n0.5,1\n0.5,2\n");
  CHECK(unwrap(read_results(temp / "t")).size() == 2);
}

TEST_CASE("result files: an empty progress.csv that was left behind gets its header") {
  const test::TempFolder temp;
  temp.write("t/progress.csv", "");
  temp.write("t/result.json", "");
  unwrap(open(temp / "t")->append(row_of(1)));
  CHECK(read(temp / "t/progress.csv") == "loss,training_iteration\n0.5,1\n");
}

TEST_CASE("result files: half a line of a killed process goes, and progress.csv follows") {
  const test::TempFolder temp;
  {
    const auto files = open(temp / "t");
    unwrap(files->append(row_of(1)));
    unwrap(files->append(row_of(2)));
  }
  const std::string whole = read(temp / "t/result.json");
  const std::string csv = read(temp / "t/progress.csv");
  for (const std::string& torn :
       {std::string(R"({"loss":0.)"), std::string(5, '\0'), std::string("{\n")}) {
    temp.write("t/result.json", whole + torn);
    temp.write("t/progress.csv", csv.substr(0, csv.size() - 3));
    CHECK(open(temp / "t")->last_iteration() == 2);
    CHECK(read(temp / "t/result.json") == whole);
    CHECK(read(temp / "t/progress.csv") == csv);
  }
  temp.write("t/result.json", "{\n" + whole);
  const auto damaged = TrialFiles::open(temp / "t", kConfig);
  REQUIRE_FALSE(damaged);
  CHECK(code_of(damaged.error()) == Errc::corrupt);
  CHECK(text_of(damaged.error()).find("result.json: line 1") != std::string::npos);
}

TEST_CASE("result files: rows beyond the journal are dropped from both files") {
  const test::TempFolder temp;
  const auto files = open(temp / "t");
  for (int i = 1; i <= 5; ++i) unwrap(files->append(row_of(i)));
  unwrap(files->append({{"late", 1}, {"training_iteration", 6}}));
  unwrap(files->truncate_to(3));
  CHECK(files->last_iteration() == 3);
  CHECK(read(temp / "t/progress.csv") == "loss,training_iteration\n0.5,1\n0.5,2\n0.5,3\n");
  unwrap(files->append(row_of(4)));
  CHECK(unwrap(read_results(temp / "t")).size() == 4);
  unwrap(files->truncate_to(0));
  CHECK(read(temp / "t/result.json").empty());
  CHECK(read(temp / "t/progress.csv").empty());
}

TEST_CASE("result files: a full disk leaves a row in both files or in none; a retry writes it") {
  const std::string text(3000, 'x');
  // Limits that are met inside the JSON line, inside the CSV record, and while columns are added.
  for (const std::uintmax_t room : {200u, 3050u, 6100u})
    for (const bool late_column : {false, true}) {
      CAPTURE(room);
      CAPTURE(late_column);
      const test::TempFolder temp;
      const auto files = open(temp / "t");
      unwrap(files->append(row_of(1)));
      unwrap(files->append({{"loss", text}, {"training_iteration", 2}}));
      const std::string json = read(temp / "t/result.json");
      const std::string csv = read(temp / "t/progress.csv");
      TrialResult row{{"loss", text + text}, {"training_iteration", 3}};
      if (late_column) row.set("late", 1);
      {
        const FileSizeLimit limit(csv.size() + room);
        const auto failed = files->append(row);
        REQUIRE_FALSE(failed);
        CHECK(code_of(failed.error()) == Errc::io);
        CHECK_FALSE(files->append(row));
        CHECK(read(temp / "t/result.json") == json);
        CHECK(read(temp / "t/progress.csv") == csv);
        CHECK(files->last_iteration() == 2);
      }
      unwrap(files->append(row));
      unwrap(files->append(row_of(4)));
      const auto rows = unwrap(read_results(temp / "t"));
      REQUIRE(rows.size() == 4);
      CHECK(rows[2] == row);
      const std::string after = read(temp / "t/progress.csv");
      open(temp / "t");  // makes it anew from result.json, if it differed
      CHECK(read(temp / "t/progress.csv") == after);
    }
}

TEST_CASE("result files: a folder that vanishes is an error, and the trial goes on in a new one") {
  const test::TempFolder temp;
  CHECK_FALSE(TrialFiles::open(temp / "x/t", kConfig));  // it makes no folder of others
  fs::create_directory(temp / "x");
  const auto files = open(temp / "x/t");
  unwrap(files->append(row_of(1)));
  fs::remove_all(temp / "x");
  CHECK_FALSE(files->append(row_of(2)));
  CHECK_FALSE(files->append(row_of(2)));  // the experiment's folder is still gone
  fs::create_directory(temp / "x");
  unwrap(files->append(row_of(2)));
  CHECK(read(temp / "x/t/progress.csv") == "loss,training_iteration\n0.5,2\n");
  CHECK(fs::exists(temp / "x/t/params.json"));
}

TEST_CASE("result files: descriptors are open while a trial runs; 2,000 closed ones cost none") {
  const test::TempFolder temp;
  const std::size_t before = open_descriptors();
  std::vector<std::unique_ptr<TrialFiles>> all;
  for (int i = 0; i < 2000; ++i) {
    all.push_back(open(temp / ("t" + std::to_string(i))));
    unwrap(all.back()->append(row_of(1)));
    if (i == 0) CHECK(open_descriptors() == before + 2);
    all.back()->close();
  }
  CHECK(open_descriptors() == before);
  unwrap(all.front()->append(row_of(2)));
  CHECK(read(temp / "t0/progress.csv") == "loss,training_iteration\n0.5,1\n0.5,2\n");
}

TEST_CASE("result files: error.txt counts the failures, one after the other") {
  const test::TempFolder temp;
  const auto files = open(temp / "t");
  const Clock::WallTime now{std::chrono::seconds(1'600'000'000)};
  unwrap(files->append_error(1, "exit by signal 9", now));
  unwrap(files->append_error(2, "shapes differ", now));
  const std::string text = read(temp / "t/error.txt");
  CHECK(text.starts_with("Failure # 1 (occurred at 2020-09-1"));
  CHECK(text.find(")\nexit by signal 9\nFailure # 2 (occurred at ") != std::string::npos);
  CHECK(text.ends_with("shapes differ\n"));
}

TEST_CASE("result files: the last row is found behind half a line, however long it is") {
  const test::TempFolder temp;
  CHECK_FALSE(unwrap(read_last_result(temp.path())).has_value());
  const auto files = open(temp / "t");
  CHECK_FALSE(unwrap(read_last_result(temp / "t")).has_value());
  unwrap(files->append(row_of(1)));
  CHECK(unwrap(read_last_result(temp / "t"))->row == row_of(1));
  CHECK(unwrap(read_last_result(temp / "t"))->config == kConfig);
  const TrialResult large{{"text", std::string(300'000, 'x')}, {"training_iteration", 2}};
  unwrap(files->append(large));
  CHECK(unwrap(read_last_result(temp / "t"))->row == large);
  temp.write("t/result.json", read(temp / "t/result.json") + "{\"loss\"");
  CHECK(unwrap(read_last_result(temp / "t"))->row == large);
}
