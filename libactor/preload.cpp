#include "libactor/preload.hpp"

#include "libactor/internal/demangle.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace troupe {
namespace internal {
namespace {

struct Preload {
  PreloadBody body = nullptr;
  std::shared_ptr<void> value = {};
  Error error = {};

  bool tried() const { return value || error; }
};

/// Written before `main` by the registrations; afterwards only values and errors change, under the
/// mutex, which is recursive since a preload function may ask for what another one has loaded.
struct PreloadTable {
  std::recursive_mutex mutex;
  std::map<std::string, Preload, std::less<>> preloads;
};

PreloadTable& table() {
  static PreloadTable the_table;
  return the_table;
}

struct ParameterTable {
  std::mutex mutex;
  Parameters values;
};

ParameterTable& parameter_table() {
  static ParameterTable the_table;
  return the_table;
}

/// "troupe::internal::PreloadKey<&(my::fashion_mnist())>" is "fashion_mnist".
std::string readable_name(const std::string& name) {
  std::string text = without_namespaces(demangled(name.c_str()));
  if (const auto at = text.find('&'); at != std::string::npos) text.erase(0, at + 1);
  while (!text.empty() && std::string_view("()> ").find(text.back()) != std::string_view::npos)
    text.pop_back();
  if (!text.empty() && text.front() == '(') text.erase(0, 1);
  return text;
}

void load(const std::string& name, Preload& preload) {
  auto loaded = fence(Errc::user_code, [&] { return preload.body(); });
  if (loaded)
    preload.value = std::move(*loaded);
  else
    preload.error = with_context(loaded.error(), "preloaded '" + readable_name(name) + "'");
}

}  // namespace

bool add_preload(const char* name, PreloadBody body) {
  const auto [at, added] = table().preloads.emplace(name, Preload{.body = body});
  if (!added && at->second.body != body) {
    std::fprintf(stderr,
                 "troupe: two functions in preloaded<> have the name '%s'; one of them stands in "
                 "an anonymous namespace? Rename one\n",
                 readable_name(name).c_str());
    std::abort();
  }
  return true;
}

void* preloaded_value(const char* name, PreloadBody body) {
  std::lock_guard lock(table().mutex);
  const auto at = table().preloads.try_emplace(name, Preload{.body = body}).first;
  if (!at->second.tried()) load(at->first, at->second);
  if (at->second.error) throw Exception(at->second.error);
  return at->second.value.get();
}

std::vector<Error> run_preloads(const std::function<void(const std::string& name)>& before_each) {
  std::vector<Error> errors;
  std::lock_guard lock(table().mutex);
  for (auto& [name, preload] : table().preloads) {
    if (preload.tried()) continue;
    before_each(readable_name(name));
    load(name, preload);
    if (preload.error) errors.push_back(preload.error);
  }
  return errors;
}

void set_parameters(Parameters parameters) {
  std::lock_guard lock(parameter_table().mutex);
  parameter_table().values = std::move(parameters);
}

Parameters parameters() {
  std::lock_guard lock(parameter_table().mutex);
  return parameter_table().values;
}

}  // namespace internal

std::string parameter(std::string_view name, std::string_view fallback) {
  auto& table = internal::parameter_table();
  std::lock_guard lock(table.mutex);
  const auto at = table.values.find(name);
  return at == table.values.end() ? std::string(fallback) : at->second;
}

}  // namespace troupe
