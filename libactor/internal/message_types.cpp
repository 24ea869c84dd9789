#include "libactor/internal/message_types.hpp"

#include "libactor/internal/messages.hpp"

namespace troupe {
namespace {

/// Written before `main`, as the entry table is.
std::vector<internal::AddTypes>& table() {
  static std::vector<internal::AddTypes> types = {&add_block<caf::id_block::troupe_actor>,
                                                  &add_block<caf::id_block::troupe_node>};
  return types;
}

}  // namespace

bool add_message_types(internal::AddTypes add) {
  table().push_back(add);
  return true;
}

namespace internal {

std::vector<AddTypes> message_types() { return table(); }

}  // namespace internal
}  // namespace troupe
