#include "libactor/resources.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace troupe;

TEST_CASE("resources: 0.1 ten times is exactly 1") {
  Amount sum;
  for (int i = 0; i < 10; ++i) sum = sum + Amount(0.1);
  CHECK(sum == Amount(1));
}

TEST_CASE("resources: text leaves out what is 0 or not said") {
  CHECK(
      Resources{
          .cpus = 2, .gpus = 1, .memory_bytes = std::int64_t{2} << 30, .custom = {{"licences", 1}}}
          .text() == "cpus=2 gpus=1 memory=2.0GiB licences=1");
  CHECK(Resources{.cpus = 0.5, .gpus = 0}.text() == "cpus=0.5");
  CHECK(Amount(1.25).text() == "1.25");
  CHECK(Amount(100).text() == "100");
  CHECK(Amount(0).text() == "0");
}

TEST_CASE("resources: bytes are told in the unit that fits") {
  CHECK(bytes_text(0) == "0B");
  CHECK(bytes_text(1023) == "1023B");
  CHECK(bytes_text(1024) == "1.0KiB");
  CHECK(bytes_text((std::int64_t{1} << 20) - 1) == "1.0MiB");
  CHECK(bytes_text(INT64_MAX) == "8.0EiB");
}

TEST_CASE("resources: amounts that nobody can have are refused by name") {
  CHECK(Resources{}.check());
  CHECK(Resources{.cpus = 0, .gpus = 0.5}.check());
  CHECK(Resources{.gpus = 2}.check());
  CHECK(text_of(Resources{.cpus = -1}.check().error()).find("cpus") != std::string::npos);
  CHECK_FALSE(Resources{.cpus = std::nan("")}.check());
  CHECK(text_of(Resources{.gpus = 1.5}.check().error()).find("gpus is 1.5") != std::string::npos);
  CHECK(text_of(Resources{.memory_bytes = -3}.check().error()).find("-3") != std::string::npos);
  CHECK(text_of(Resources{.custom = {{"disk", -1}}}.check().error()).find("disk") !=
        std::string::npos);
  CHECK_FALSE(Resources{.custom = {{"gpus", 1}}}.check());
}
