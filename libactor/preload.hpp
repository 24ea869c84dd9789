#pragma once

#include "libactor/result.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace troupe {

/// A value that the driver gave by `Cluster::set_parameter`, in a worker, a preload function or the
/// driver itself; `fallback` when there is none.
std::string parameter(std::string_view name, std::string_view fallback = {});

namespace internal {

using PreloadBody = std::shared_ptr<void> (*)();

bool add_preload(const char* name, PreloadBody body);

/// The loaded value; loads it now in a process where nobody has (the driver). Throws `Exception`
/// with what the function threw, here or in the zygote.
void* preloaded_value(const char* name, PreloadBody body);

/// Zygote only, before its first fork: runs every registered function, telling its name to
/// `before_each`. Returns what failed; the errors are kept for `preloaded_value` too.
std::vector<Error> run_preloads(const std::function<void(const std::string& name)>& before_each);

/// What `parameter` reads, in this process.
using Parameters = std::map<std::string, std::string, std::less<>>;
void set_parameters(Parameters parameters);
Parameters parameters();

template <auto Load>
std::shared_ptr<void> load_it() {
  return std::make_shared<std::invoke_result_t<decltype(Load)>>(Load());
}

template <auto Load>
struct PreloadKey {
  static const bool done;
};
template <auto Load>
const bool PreloadKey<Load>::done = add_preload(typeid(PreloadKey<Load>).name(), &load_it<Load>);

}  // namespace internal

/// What `Load()` returned, once a machine: the zygote calls it before it forks its first worker,
/// and all workers share its pages (copy on write). `Load` is a plain function without arguments;
/// name a data folder by `parameter`.
template <auto Load>
const std::invoke_result_t<decltype(Load)>& preloaded() {
  (void)internal::PreloadKey<Load>::done;
  return *static_cast<const std::invoke_result_t<decltype(Load)>*>(internal::preloaded_value(
      typeid(internal::PreloadKey<Load>).name(), &internal::load_it<Load>));
}

}  // namespace troupe
