#pragma once

#include <string>
#include <string_view>

namespace troupe::internal {

/// The source form of a compiler's name; the name itself when it is none.
std::string demangled(const char* name);

/// "ns::Outer<ns::A>::Inner" is "Inner", "ns::List<ns::A>" is "List<A>".
std::string without_namespaces(std::string_view name);

}  // namespace troupe::internal
