#include "libactor/internal/demangle.hpp"

#include <cctype>
#include <cstdlib>
#include <memory>

#include <cxxabi.h>

namespace troupe::internal {
namespace {

/// Removes from the end of `text` one balanced group such as "(int)" or "<A, B>".
void drop_group(std::string& text, char open, char close) {
  int depth = 0;
  while (!text.empty()) {
    const char last = text.back();
    text.pop_back();
    if (last == close) ++depth;
    if (last == open && --depth == 0) return;
  }
}

/// Removes the scope that stands before "::".
void drop_scope(std::string& text) {
  while (!text.empty() && (text.back() == ')' || text.back() == '>'))
    text.back() == ')' ? drop_group(text, '(', ')') : drop_group(text, '<', '>');
  while (!text.empty() &&
         (std::isalnum(static_cast<unsigned char>(text.back())) || text.back() == '_'))
    text.pop_back();
}

}  // namespace

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

std::string without_namespaces(std::string_view name) {
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i, 2) == "::") {
      drop_scope(result);
      ++i;
    } else {
      result.push_back(name[i]);
    }
  }
  return result;
}

}  // namespace troupe::internal
