#include "libactor/entry.hpp"

#include "libactor/internal/demangle.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>

namespace troupe {
namespace {

/// Made by the first registration, whichever file that stands in.
std::map<std::string, EntryBody, std::less<>>& entries() {
  static std::map<std::string, EntryBody, std::less<>> table;
  return table;
}

}  // namespace

bool add_entry(const char* name, EntryBody body) {
  const auto [at, added] = entries().emplace(name, body);
  if (!added && at->second != body) {
    std::fprintf(stderr,
                 "troupe: two entries have the name '%s' (%s) and different bodies; two types of "
                 "one name in two files' anonymous namespaces? Rename one\n",
                 name, internal::demangled(name).c_str());
    std::abort();
  }
  return true;
}

EntryBody find_entry(std::string_view name) {
  const auto at = entries().find(name);
  return at == entries().end() ? nullptr : at->second;
}

std::vector<std::string> entry_names() {
  std::vector<std::string> names;
  for (const auto& [name, body] : entries()) names.push_back(name);
  return names;
}

std::string readable_type_name(const std::type_info& type) {
  return internal::without_namespaces(internal::demangled(type.name()));
}

}  // namespace troupe
