#include "libactor/internal/zygote_protocol.hpp"

#include <cstdio>

namespace troupe::internal {
namespace {

using namespace zygote_event;

void write(FrameWriter& out, const SettingsOrder& order) {
  out.number(order.strict).texts_by_name(order.parameters);
}
void read(FrameReader& in, SettingsOrder& order) {
  order.strict = in.number() != 0;
  order.parameters = in.texts_by_name<Parameters>();
}

void write(FrameWriter& out, const StartOrder& order) { write_worker_start(out, order.start); }
void read(FrameReader& in, StartOrder& order) { order.start = read_worker_start(in); }

void write(FrameWriter& out, const SignalOrder& order) {
  out.number(order.lease).number(static_cast<std::uint64_t>(order.number)).number(order.group);
}
void read(FrameReader& in, SignalOrder& order) {
  order.lease = in.number();
  order.number = static_cast<int>(in.number());
  order.group = in.number() != 0;
}

void write(FrameWriter& out, const Ready& note) {
  out.number(static_cast<std::uint64_t>(note.pid)).number(note.threads.size());
  for (const auto& name : note.threads) out.text(name);
}
void read(FrameReader& in, Ready& note) {
  note.pid = static_cast<pid_t>(in.number());
  for (std::size_t left = in.count(); left > 0; --left) note.threads.push_back(in.text());
}

void write(FrameWriter& out, const Warned& note) { out.text(note.text); }
void read(FrameReader& in, Warned& note) { note.text = in.text(); }

void write(FrameWriter& out, const Started& note) {
  out.number(note.lease).number(static_cast<std::uint64_t>(note.pid));
}
void read(FrameReader& in, Started& note) {
  note.lease = in.number();
  note.pid = static_cast<pid_t>(in.number());
}

void write(FrameWriter& out, const StartFailed& note) {
  out.number(note.lease).number(note.hopeless ? 1 : 0).text(note.text);
}
void read(FrameReader& in, StartFailed& note) {
  note.lease = in.number();
  note.hopeless = in.number() != 0;
  note.text = in.text();
}

void write(FrameWriter& out, const Exited& note) {
  out.number(note.lease)
      .number(static_cast<std::uint64_t>(note.exit.code))
      .number(static_cast<std::uint64_t>(note.exit.signal));
}
void read(FrameReader& in, Exited& note) {
  note.lease = in.number();
  note.exit.code = static_cast<int>(in.number());
  note.exit.signal = static_cast<int>(in.number());
}

void write(FrameWriter& out, const Output& note) { out.number(note.lease).text(note.lines); }
void read(FrameReader& in, Output& note) {
  note.lease = in.number();
  note.lines = in.text();
}

void write(FrameWriter& out, const LoadingNote& note) { out.text(note.name); }
void read(FrameReader& in, LoadingNote& note) { note.name = in.text(); }

template <class Variant>
std::string encode_any(const Variant& value) {
  FrameWriter out;
  out.number(value.index());
  std::visit([&](const auto& one) { write(out, one); }, value);
  return out.take();
}

template <class Variant, std::size_t I = 0>
std::optional<Variant> decode_any(FrameReader& in, std::uint64_t index) {
  if constexpr (I < std::variant_size_v<Variant>) {
    if (index != I) return decode_any<Variant, I + 1>(in, index);
    std::variant_alternative_t<I, Variant> value;
    read(in, value);
    if (in.complete()) return Variant(std::in_place_index<I>, std::move(value));
  }
  return {};
}

}  // namespace

std::string lease_text(std::string_view zygote_name, std::uint64_t lease) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(lease));
  return std::string(zygote_name) + "." + digits;
}

std::string encode(const ZygoteOrder& order) { return encode_any(order); }
std::string encode(const ZygoteNote& note) { return encode_any(note); }

std::optional<ZygoteOrder> decode_order(std::string_view bytes) {
  FrameReader in(bytes);
  return decode_any<ZygoteOrder>(in, in.number());
}

std::optional<ZygoteNote> decode_note(std::string_view bytes) {
  FrameReader in(bytes);
  return decode_any<ZygoteNote>(in, in.number());
}

}  // namespace troupe::internal
