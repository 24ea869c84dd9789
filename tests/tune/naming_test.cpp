#include "tune/naming.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace troupe::tune;

TEST_CASE("naming: ids begin with a letter, which the seed draws") {
  CHECK(head_from_seed(0) == "b169c");
  CHECK(head_from_seed(42) == "ff908");
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const std::string head = head_from_seed(seed);
    CHECK(head.size() == 5);
    CHECK((head[0] >= 'a' && head[0] <= 'f'));
    CHECK(head.find_first_not_of("0123456789abcdef") == head.npos);
  }
  CHECK(trial_id("a1b2c", 3) == "a1b2c_00003");
  CHECK(trial_id("a1b2c", 1'234'567) == "a1b2c_1234567");
}

TEST_CASE("naming: each trial has a seed of its own") {
  CHECK(trial_seed(42, 0) == 0x3750ad1cc7bb066d);
  CHECK(trial_seed(42, 1) == 0xe45866579c071cb3);
}

TEST_CASE("naming: a tag has the index, last names and five digits") {
  CHECK(experiment_tag(0, {}) == "0");
  CHECK(experiment_tag(3, {{"lr", 0.001}, {"momentum", 0.5}}) == "3_lr=0.001,momentum=0.5");
  CHECK(experiment_tag(12, {{"augment/crop", 1.23456789},
                            {"lr", 1.0e-7},
                            {"n", 1'000'000},
                            {"path", "a/b"},
                            {"x", 3.0}}) == "12_crop=1.2346,lr=1e-07,n=1000000,path=a_b,x=3");
  CHECK(experiment_tag(1, {{"blocks", list({2, 0.123456})}, {"flip", true}}) ==
        "1_blocks=[2, 0.12346],flip=true");
}

TEST_CASE("naming: a folder's name has nothing that a shell or file system minds") {
  CHECK(trial_directory("Net_a1b2c_00003", "3_lr=0.001", "2026-12-01_09-30-00") ==
        "Net_a1b2c_00003_3_lr=0.001_2026-12-01_09-30-00");
  CHECK(trial_directory("a/b\\c", "0_x=[1, (2)]{3}\n\x7f", "D") == "a_b_c_0_x=_1, _2___3____D");
  CHECK(trial_directory("net", std::string("0_x=a\0b", 7), "D") == "net_0_x=a_b_D");
  CHECK(trial_directory("net\xff", "0_k=\xc3\xa9\xc3", "D") == "net__0_k=\xc3\xa9__D");
}

TEST_CASE("naming: a folder's name is cut to 130 bytes and never inside a character") {
  const std::string long_tag = "0_x=" + std::string(500, 'y');
  CHECK(trial_directory("net", long_tag, "D") == "net_0_x=" + std::string(122, 'y') + "_D");
  std::string accents;
  for (int i = 0; i < 200; ++i) accents += "\xc3\xa9";
  const std::string cut = trial_directory("n", accents, "D");  // "n_" and 64 times two bytes
  CHECK(cut.size() == 130 + 2);
  CHECK(trial_directory("ne", accents, "D").size() == 129 + 2);
}

TEST_CASE(
    "naming: a run's name that can't be a folder is refused without being repeated as it is") {
  for (const std::string good : {"run", "läuft", "a b", "a.b", "-x", ".hidden", "..."})
    CHECK(check_run_name(good));
  const auto refusal = [](const std::string& name) {
    const auto checked = check_run_name(name);
    REQUIRE_FALSE(checked);
    const auto text = troupe::text_of(checked.error());
    CHECK(text.find_first_of(std::string("\n\t\x1b\x7f\xff\0", 6)) == text.npos);
    return text;
  };
  CHECK(refusal("").find("name '' is empty; it is to become a folder in local_dir") == 0);
  CHECK(refusal("a/b").find("name 'a/b' is a path") == 0);
  CHECK(refusal(".").find("is a path") != std::string::npos);
  CHECK(refusal("..").find("is a path") != std::string::npos);
  for (const std::string& name :
       {std::string("a\nb"), std::string("a\0b", 3), std::string("\x1b[2J"), std::string("\x7f"),
        std::string("\xc2\x9b")})
    CHECK(refusal(name).find("has a control character") != std::string::npos);
  for (const char* name : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80"})
    CHECK(refusal(name).find("has bytes that are no UTF-8") != std::string::npos);
  CHECK(refusal(std::string(201, 'x')).find("is longer than 200 bytes") != std::string::npos);
}

TEST_CASE("naming: a suffix is four digits, another for each attempt") {
  std::set<std::string> seen;
  for (std::uint64_t attempt = 0; attempt < 20; ++attempt) {
    const std::string name = with_suffix("dir", attempt);
    CHECK(name.size() == 8);
    CHECK(name.starts_with("dir_"));
    seen.insert(name);
  }
  CHECK(seen.size() >= 19);
  CHECK(with_suffix("dir", 1) == with_suffix("dir", 1));
}

TEST_CASE("naming: a date sorts as it reads") {
  const std::string date = date_for_name(std::chrono::system_clock::from_time_t(1'796'000'000));
  CHECK(date.size() == 19);
  CHECK(date.substr(0, 7) == "2026-11");
  CHECK(date[10] == '_');
}
