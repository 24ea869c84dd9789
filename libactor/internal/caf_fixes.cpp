/// CAF 0.17.6's sharp edges, filed off by symbol interposition: the dynamic linker takes what a
/// program defines before what its libraries define. So this file must be compiled with default
/// visibility and be part of the program itself; `caf_fixes_self_test` tells when it is not.

#include "libactor/internal/caf_fixes.hpp"

#include "libactor/float_fix.hpp"
#include "libactor/limits.hpp"
#include "libactor/log.hpp"

#include <fmt/format.h>
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/detail/get_root_uuid.hpp>
#include <caf/io/basp/header.hpp>
#include <caf/io/basp/instance.hpp>
#include <caf/io/basp/version.hpp>
#include <caf/io/basp_broker.hpp>

#include <dlfcn.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

using troupe::limits::kFrameBytes;
using troupe::limits::kMessageBytes;

namespace caf {

// --- numbers ----------------------------------------------------------------------------------

template <>
error serializer_impl<std::vector<char>>::apply_impl(float& x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  return apply_impl(bits);
}

template <>
error serializer_impl<std::vector<char>>::apply_impl(double& x) {
  auto bits = std::bit_cast<std::uint64_t>(x);
  return apply_impl(bits);
}

error binary_deserializer::apply_impl(float& x) {
  std::uint32_t bits = 0;
  if (auto failed = apply_impl(bits)) return failed;
  x = std::bit_cast<float>(bits);
  return none;
}

error binary_deserializer::apply_impl(double& x) {
  std::uint64_t bits = 0;
  if (auto failed = apply_impl(bits)) return failed;
  x = std::bit_cast<double>(bits);
  return none;
}

// --- bounds on what comes in --------------------------------------------------------------------

/// Each element takes a byte at least, so a count above the rest of the message is a lie. The count
/// is a varint of at most 32 bits.
error binary_deserializer::begin_sequence(size_t& count) {
  std::uint64_t value = 0;
  std::uint8_t byte = 0x80;
  for (int shift = 0; byte & 0x80; shift += 7) {
    if (shift > 28) return sec::invalid_argument;
    if (auto failed = apply_impl(byte)) return failed;
    value |= std::uint64_t{byte & 0x7Fu} << shift;
  }
  if (value > remaining()) return sec::end_of_stream;
  count = value;
  return none;
}

/// Messages may hold messages; CAF reads them by recursion without a bound.
error message::load(deserializer& source) {
  using Load = error (message::*)(deserializer&);
  static const Load caf_load = [] {
    void* found = dlsym(RTLD_NEXT, "_ZN3caf7message4loadERNS_12deserializerE");
    std::array<void*, 2> as_member{found, nullptr};  // Itanium ABI: function and adjustment
    return std::bit_cast<Load>(as_member);
  }();
  thread_local int depth = 0;
  if (depth >= troupe::limits::kMessageDepth) return sec::invalid_argument;
  ++depth;
  auto failed = (this->*caf_load)(source);
  --depth;
  return failed;
}

/// Each thread that makes a system or a scoped_actor would keep CAF's logger (which is compiled out
/// of Debian's CAF), and a system does not end while another thread that lives on does.
void logger::set_current_actor_system(actor_system*) {}

namespace detail {

/// CAF hashes MAC addresses and a disk's UUID into the node's identity, which are the same in every
/// container of a machine: messages would go to an actor of the sender's own.
std::string get_root_uuid() {
  std::ifstream file("/proc/sys/kernel/random/uuid");
  std::string uuid;
  file >> uuid;
  return uuid;
}

}  // namespace detail

namespace io {

/// CAF spawns a helper for each new node and keeps it for ever (1.4 KB a worker), for remote_spawn,
/// which Troupe does not use.
void basp_broker::learned_new_node(const node_id&) {}

namespace basp {
namespace {

constexpr std::int64_t kHandshakeBytes = std::int64_t{1} << 16;
constexpr std::int64_t kPayloadBytes =
    kMessageBytes + kFrameBytes;  // a full blob, and its envelope

}  // namespace

/// CAF's own checks, and: a handshake has a payload (without one CAF reads a null pointer), and no
/// payload is so large that announcing it costs the receiver more than one message may.
bool valid(const header& h) {
  const bool has_payload = h.payload_len > 0 && h.payload_len <= kPayloadBytes;
  const bool is_handshake = h.payload_len > 0 && h.payload_len < kHandshakeBytes;
  switch (h.operation) {
    case message_type::server_handshake: return is_handshake && h.operation_data == version;
    case message_type::client_handshake:
      return is_handshake && h.source_actor == 0 && h.dest_actor == 0;
    case message_type::direct_message:
    case message_type::routed_message: return has_payload && h.dest_actor != 0;
    case message_type::monitor_message: return has_payload && h.operation_data == 0;
    case message_type::down_message:
      return has_payload && h.source_actor != 0 && h.dest_actor == 0 && h.operation_data == 0;
    case message_type::heartbeat:
      return h.payload_len == 0 && h.source_actor == 0 && h.dest_actor == 0 &&
             h.operation_data == 0;
  }
  return false;
}

// --- bounds on what goes out --------------------------------------------------------------------

/// CAF cuts a length to 32 bits and sends what was left of a message whose serialisation failed.
/// Here such a message is not sent: its request ends by its time-out, and the log says why.
void instance::write(execution_unit* context, buffer_type& out, header& h,
                     payload_writer* write_payload) {
  const size_t start = out.size();
  binary_serializer sink{context, out};
  if (write_payload) {
    sink.skip(header_size);
    const error failed = (*write_payload)(sink);
    const auto size = static_cast<std::int64_t>(out.size() - start - header_size);
    if (failed || size > kPayloadBytes) {
      troupe::log_error(fmt::format(
          "message not sent: type={} bytes={} limit={} reason={}", to_string(h.operation), size,
          kPayloadBytes, failed ? troupe::text_of(failed) : "too large; send blobs in chunks"));
      out.resize(start);
      out.shrink_to_fit();
      return;
    }
    h.payload_len = static_cast<std::uint32_t>(size);
    sink.seek(start);
  }
  if (const error failed = sink(h))
    troupe::log_error("message header not written: " + troupe::text_of(failed));
}

}  // namespace basp
}  // namespace io
}  // namespace caf

namespace troupe::internal {
namespace {

constexpr std::array kReplaced{
    std::pair{"_ZN3caf6detail13get_root_uuidB5cxx11Ev", "caf::detail::get_root_uuid"},
    std::pair{"_ZN3caf15serializer_implISt6vectorIcSaIcEEE10apply_implERf", "writing a float"},
    std::pair{"_ZN3caf15serializer_implISt6vectorIcSaIcEEE10apply_implERd", "writing a double"},
    std::pair{"_ZN3caf19binary_deserializer10apply_implERf", "reading a float"},
    std::pair{"_ZN3caf19binary_deserializer10apply_implERd", "reading a double"},
    std::pair{"_ZN3caf19binary_deserializer14begin_sequenceERm",
              "caf::binary_deserializer::begin_sequence"},
    std::pair{"_ZN3caf7message4loadERNS_12deserializerE", "caf::message::load"},
    std::pair{"_ZN3caf6logger24set_current_actor_systemEPNS_12actor_systemE",
              "caf::logger::set_current_actor_system"},
    std::pair{"_ZN3caf2io4basp5validERKNS1_6headerE", "caf::io::basp::valid"},
    std::pair{"_ZN3caf2io11basp_broker16learned_new_nodeERKNS_7node_idE",
              "caf::io::basp_broker::learned_new_node"},
    std::pair{"_ZN3caf2io4basp8instance5writeEPNS_14execution_unitERSt6vectorIcSaIcEERNS1_"
              "6headerEPNS_8callbackIJRNS_10serializerEEEE",
              "caf::io::basp::instance::write"},
};

/// The program or library that an address belongs to.
const void* image_of(const void* address) {
  Dl_info info{};
  return address && dladdr(address, &info) ? info.dli_fbase : nullptr;
}

template <class Number, class Bits>
bool survives(Bits bits) {
  std::vector<char> buffer;
  caf::binary_serializer sink{static_cast<caf::execution_unit*>(nullptr), buffer};
  auto sent = std::bit_cast<Number>(bits);
  if (sink(sent)) return false;
  Number received{};
  caf::binary_deserializer source{static_cast<caf::execution_unit*>(nullptr), buffer};
  return !source(received) && std::bit_cast<Bits>(received) == bits;
}

}  // namespace

Result<void> caf_fixes_self_test() {
  const void* ours = image_of(reinterpret_cast<const void*>(&caf_fixes_self_test));
  for (const auto& [symbol, name] : kReplaced)
    if (image_of(dlsym(RTLD_DEFAULT, symbol)) != ours)
      return make_error(Errc::bad_request,
                        std::string("this program uses CAF's own version of ") + name +
                            ", which is unsafe; link troupe::actor into the program itself, "
                            "before libcaf, and export its symbols (no version script that hides "
                            "them, no plug-in that is loaded later)");
  // infinity, a NaN with a payload, the smallest subnormal
  const bool floats =
      survives<float>(0x7F800000u) && survives<float>(0xFFC12345u) && survives<float>(0x00000001u);
  const bool doubles = survives<double>(0x7FF0000000000000ul) &&
                       survives<double>(0xFFF8000012345678ul) &&
                       survives<double>(0x0000000000000001ul);
  if (!floats || !doubles)
    return make_error(Errc::bad_request,
                      "floating-point numbers change in messages: include libactor/float_fix.hpp "
                      "before any use of caf::binary_serializer");
  return {};
}

}  // namespace troupe::internal
