#include "sgd/operator_function.hpp"

#include <functional>
#include <map>
#include <string>

namespace troupe::sgd::internal {
namespace {

std::map<std::string, OperatorFunction, std::less<>>& table() {
  static std::map<std::string, OperatorFunction, std::less<>> functions;
  return functions;
}

}  // namespace

bool add_function(const char* name, OperatorFunction function) {
  table().emplace(name, function);
  return true;
}

OperatorFunction find_function(std::string_view name) {
  const auto found = table().find(name);
  if (found == table().end())
    throw Exception(make_error(Errc::not_found, "this program has no function '" +
                                                    std::string(name) +
                                                    "': trainer and ranks are not one build"));
  return found->second;
}

}  // namespace troupe::sgd::internal
