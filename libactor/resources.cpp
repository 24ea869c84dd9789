#include "libactor/resources.hpp"

#include <cstdio>

namespace troupe {
namespace {

Result<void> check_amount(const std::string& name, Amount amount) {
  if (amount.parts() < 0)
    return make_error(
        Errc::bad_request,
        "resource " + name + " is negative, not a number or above 1e12; give 0 or more");
  return {};
}

}  // namespace

std::string Amount::text() const {
  char text[32];
  const char* sign = parts_ < 0 ? "-" : "";
  const std::int64_t parts = parts_ < 0 ? -parts_ : parts_;
  std::snprintf(text, sizeof text, "%s%lld.%04lld", sign, static_cast<long long>(parts / kScale),
                static_cast<long long>(parts % kScale));
  std::string result = text;
  result.erase(result.find_last_not_of('0') + 1);
  if (result.back() == '.') result.pop_back();
  return result;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024 && bytes > -1024) return std::to_string(bytes) + "B";
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; (value >= 1023.95 || value <= -1023.95) && unit < 5; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%s", value, kUnits[unit]);
  return text;
}

Result<void> Resources::check() const {
  if (auto checked = check_amount("cpus", cpus); !checked) return checked;
  if (gpus) {
    if (auto checked = check_amount("gpus", *gpus); !checked) return checked;
    if (*gpus > Amount(1) && gpus->parts() % Amount::kScale != 0)
      return make_error(Errc::bad_request, "resource gpus is " + gpus->text() +
                                               ": above 1 it must be a whole number of devices");
  }
  if (memory_bytes < 0)
    return make_error(Errc::bad_request, "resource memory_bytes is " +
                                             std::to_string(memory_bytes) + "; give 0 or more");
  for (const auto& [name, amount] : custom) {
    if (name.empty() || name == "cpus" || name == "gpus" || name == "memory")
      return make_error(Errc::bad_request, "a custom resource cannot be called \"" + name +
                                               "\"; the built-in ones have members of their own");
    if (auto checked = check_amount(name, amount); !checked) return checked;
  }
  return {};
}

std::string Resources::text() const {
  std::string result;
  const auto add = [&result](const std::string& name, const std::string& amount) {
    if (!result.empty()) result += ' ';
    result += name + "=" + amount;
  };
  if (cpus != Amount()) add("cpus", cpus.text());
  if (gpus && *gpus != Amount()) add("gpus", gpus->text());
  if (memory_bytes != 0) add("memory", bytes_text(memory_bytes));
  for (const auto& [name, amount] : custom)
    if (amount != Amount()) add(name, amount.text());
  return result;
}

}  // namespace troupe
