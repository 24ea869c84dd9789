#include "libactor/entry.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe;

namespace shop {
struct Shelf {
  struct Board {};
};
template <class T>
struct Box {};
}  // namespace shop

namespace {
struct Hidden {};
int body(Worker&) { return 3; }
}  // namespace

TEST_CASE("entry: mentioning a registration puts the body into the table before main") {
  static_cast<void>(Registration<&body, shop::Shelf>::done);
  CHECK((find_entry(entry_name<shop::Shelf>()) == &body));
  const auto names = entry_names();
  CHECK(std::count(names.begin(), names.end(), entry_name<shop::Shelf>()) == 1);
  CHECK((find_entry("no such entry") == nullptr));
}

TEST_CASE("entry: the same body under the same name is one entry") {
  CHECK(add_entry(entry_name<shop::Shelf>(), &body));
}

TEST_CASE("entry: people see type names without namespaces") {
  CHECK(readable_type_name(typeid(shop::Shelf)) == "Shelf");
  CHECK(readable_type_name(typeid(shop::Shelf::Board)) == "Board");
  CHECK(readable_type_name(typeid(shop::Box<shop::Shelf>)) == "Box<Shelf>");
  CHECK(readable_type_name(typeid(Hidden)) == "Hidden");
  struct Local {};
  CHECK(readable_type_name(typeid(Local)) == "Local");
  CHECK(readable_type_name(typeid(int)) == "int");
}
