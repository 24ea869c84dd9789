#include "tune/internal/wire.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstdint>
#include <cstring>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::tune::internal {
namespace {

constexpr std::uint32_t kMaxSegments = 512;  // what Cap'n Proto's stream readers allow

unsigned length(std::size_t size) { return static_cast<unsigned>(size); }

/// With its length: a text may hold a NUL.
capnp::Text::Reader text(const std::string& text) { return {text.c_str(), text.size()}; }

std::string_view view(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

void write_entry(const std::string& key, const Value& value, wire::Entry::Builder out) {
  out.setKey(text(key));
  write(value, out.initValue());
}

template <class Struct, class T>
std::string encoded(const T& value) {
  capnp::MallocMessageBuilder message;
  write(value, message.initRoot<Struct>());
  const auto words = capnp::messageToFlatArray(message);
  const auto bytes = words.asChars();
  return {bytes.begin(), bytes.size()};
}

template <class Struct>
auto decoded(std::string_view bytes) {
  return fence(Errc::corrupt, [&] {
    const auto refuse = [](const char* why) { throw Exception(make_error(Errc::corrupt, why)); };
    if (bytes.size() < sizeof(capnp::word) || bytes.size() % sizeof(capnp::word) != 0)
      refuse("a message has whole words of 8 bytes");
    // The flat reader sizes its table by this number, so it is looked at before.
    std::uint32_t segments_less_one = 0;
    std::memcpy(&segments_less_one, bytes.data(), sizeof(segments_less_one));
    if (segments_less_one >= kMaxSegments)
      refuse("a message of that many segments is none of ours");

    auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));  // for alignment
    std::memcpy(words.begin(), bytes.data(), bytes.size());
    capnp::FlatArrayMessageReader message(words);
    if (message.getEnd() != words.end()) refuse("there is something behind the message");
    return read(message.getRoot<Struct>());
  });
}

}  // namespace

void write(const Value& value, wire::Value::Builder out) {
  if (value.is_bool()) {
    out.setBoolean(value.as_bool());
  } else if (value.is_int()) {
    out.setInteger(value.as_int());
  } else if (value.is_double()) {
    out.setReal(value.as_double());
  } else if (value.is_text()) {
    out.setText(text(value.as_text()));
  } else if (value.is_list()) {
    auto list = out.initList(length(value.as_list().size()));
    for (unsigned i = 0; i < list.size(); ++i) write(value.as_list()[i], list[i]);
  } else {
    out.setNothing();
  }
}

void write(const Config& config, wire::Config::Builder out) {
  const auto flat = config.flattened();
  auto entries = out.initEntries(length(flat.size()));
  for (unsigned i = 0; i < entries.size(); ++i)
    write_entry(flat[i].first, flat[i].second, entries[i]);

  auto empty = out.initEmptyNested(length(config.entries().size() - flat.size()));
  unsigned i = 0;
  for (const auto& [name, value] : config.entries())
    if (!value) empty.set(i++, text(name));
}

void write(const Metrics& metrics, wire::Metrics::Builder out) {
  auto entries = out.initEntries(length(metrics.size()));
  unsigned i = 0;
  for (const auto& [name, value] : metrics) write_entry(name, value, entries[i++]);
}

Value read(wire::Value::Reader in) {
  switch (in.which()) {
    case wire::Value::NOTHING: return {};
    case wire::Value::BOOLEAN: return in.getBoolean();
    case wire::Value::INTEGER: return in.getInteger();
    case wire::Value::REAL: return in.getReal();
    case wire::Value::TEXT: return view(in.getText());
    case wire::Value::LIST: {
      Value::List list;  // not reserved: the count is the sender's word
      for (const auto element : in.getList()) list.push_back(read(element));
      return list;
    }
  }
  throw Exception(make_error(Errc::corrupt, "a value is of a kind that this build does not know"));
}

Config read(wire::Config::Reader in) {
  Config config;
  for (const auto entry : in.getEntries()) config.set(view(entry.getKey()), read(entry.getValue()));
  for (const auto name : in.getEmptyNested()) config.set_empty_nested(view(name));
  return config;
}

Metrics read(wire::Metrics::Reader in) {
  std::vector<std::pair<std::string, Value>> values;
  std::unordered_set<std::string_view> names;
  for (const auto entry : in.getEntries()) {
    const auto name = view(entry.getKey());
    if (!names.insert(name).second)
      throw Exception(make_error(Errc::corrupt, "a metric is in there twice"));
    values.emplace_back(name, read(entry.getValue()));
  }
  return Metrics::from_distinct(std::move(values));
}

std::string encode(const Config& config) { return encoded<wire::Config>(config); }
std::string encode(const Metrics& metrics) { return encoded<wire::Metrics>(metrics); }

Result<Config> decode_config(std::string_view bytes) { return decoded<wire::Config>(bytes); }
Result<Metrics> decode_metrics(std::string_view bytes) { return decoded<wire::Metrics>(bytes); }

}  // namespace troupe::tune::internal
