#include <libactor/resources.hpp>
#include <tune/config.hpp>

#include <cstdio>

int main() {
  const troupe::tune::Config config = {{"lr", 0.1}};
  const troupe::Resources resources = {.cpus = 2};
  std::printf("lr %g on %s\n", config.get<double>("lr"), resources.text().c_str());
}
