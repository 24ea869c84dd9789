#pragma once

#include "libactor/actor.hpp"
#include "sgd/internal/exchange.hpp"
#include "sgd/internal/leader_exchange.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Every message between the leaders of groups of ranks.
namespace troupe::sgd::internal {

/// The younger leader's first word; answered by the same of the older.
struct LinkHello {
  std::uint64_t epoch = 0;
  std::int32_t group = 0;
  std::vector<std::int32_t> rank_counts = {};
};

struct LinkChunk {
  std::uint64_t epoch = 0;
  Chunk chunk = {};
};

/// `code`: an Errc.
struct LinkError {
  std::uint64_t epoch = 0;
  std::uint8_t code = 0;
  std::string text = {};
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LinkHello& x) {
  return f(caf::meta::type_name("troupe::LinkHello"), x.epoch, x.group, x.rank_counts);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LinkChunk& x) {
  return f(caf::meta::type_name("troupe::LinkChunk"), x.epoch, x.chunk.ticket.channel,
           x.chunk.ticket.sequence, x.chunk.region, x.chunk.hop, x.chunk.bytes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LinkError& x) {
  return f(caf::meta::type_name("troupe::LinkError"), x.epoch, x.code, x.text);
}

/// An address means nothing in another process.
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Note& x) {
  return f(caf::meta::type_name("troupe::Note"), x.kind, x.collective, x.reduce, x.dtype, x.from,
           x.root, x.channel, x.epoch, x.sequence, x.size_bytes, x.weight);
}

}  // namespace troupe::sgd::internal

CAF_BEGIN_TYPE_ID_BLOCK(troupe_link, ::troupe::kSgdTypeIds + 100)
CAF_ADD_TYPE_ID(troupe_link, (troupe::sgd::internal::LinkHello))
CAF_ADD_TYPE_ID(troupe_link, (troupe::sgd::internal::LinkChunk))
CAF_ADD_TYPE_ID(troupe_link, (troupe::sgd::internal::LinkError))
CAF_ADD_TYPE_ID(troupe_link, (troupe::sgd::internal::Note))
CAF_ADD_TYPE_ID(troupe_link, (std::vector<std::int32_t>))
CAF_ADD_ATOM(troupe_link, troupe::sgd::internal, taken_atom, "linktaken")  // a chunk; with epoch
CAF_ADD_ATOM(troupe_link, troupe::sgd::internal, bye_atom, "linkbye")      // nothing follows
CAF_ADD_ATOM(troupe_link, troupe::sgd::internal, bye_taken_atom, "linkbyeack")
CAF_END_TYPE_ID_BLOCK(troupe_link)
