/// A program that does nothing but the self-test: linked well it ends with 0, linked so that the
/// fixes are lost it prints what is lost and ends with 1.

#include "libactor/internal/caf_fixes.hpp"

int main() {
  const auto tested = troupe::internal::caf_fixes_self_test();
  return tested ? 0 : troupe::fail(tested.error());
}
