#include "tune/internal/messages.hpp"

#include <caf/all.hpp>

namespace troupe::tune::internal {
namespace {

/// Written before `main`, in every process of a program that uses tune.
const bool kTypesAdded = add_message_types(&add_block<caf::id_block::troupe_tune>);

}  // namespace

bool message_types_added() { return kTypesAdded; }

std::string encode(TrialArgument argument) {
  std::vector<char> bytes;
  caf::binary_serializer out(nullptr, bytes);
  if (auto error = out(argument)) return {};
  return {bytes.begin(), bytes.end()};
}

Result<TrialArgument> decode_argument(const std::string& bytes) {
  TrialArgument argument;
  const std::vector<char> copy(bytes.begin(), bytes.end());
  caf::binary_deserializer in(nullptr, copy);
  if (auto error = in(argument))
    return make_error(Errc::corrupt, "what a trial's process was given can't be read");
  return argument;
}

}  // namespace troupe::tune::internal
