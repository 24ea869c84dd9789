#pragma once

#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace troupe {

class Worker;

/// The body that a worker process runs for one lease, on its main thread. Returns the exit code.
using EntryBody = int (*)(Worker&);

/// Puts a body into the process's table, which is written before `main` and never after. The same
/// name with another body ends the process with both named: two types of one name in two files'
/// anonymous namespaces.
bool add_entry(const char* name, EntryBody body);

/// The body of that name, or nullptr.
EntryBody find_entry(std::string_view name);

std::vector<std::string> entry_names();

/// Mentioning `Registration<&body, Key>::done` anywhere in the program is enough to have `body` in
/// the table of every process of that program, under the compiler's name of `Key`. The only
/// template trick of the code base: driver and worker are the same binary, so users list nothing
/// and write no macro.
template <auto Body, class Key>
struct Registration {
  static const bool done;
};
template <auto Body, class Key>
const bool Registration<Body, Key>::done = add_entry(typeid(Key).name(), Body);

/// The name under which `Registration<Body, Key>` put its body.
template <class Key>
const char* entry_name() {
  return typeid(Key).name();
}

/// A type's name for people: "MnistTrainable", without namespaces.
std::string readable_type_name(const std::type_info& type);

}  // namespace troupe
