#pragma once

#include "libactor/result.hpp"
#include "tune/config.hpp"
#include "tune/internal/wire.capnp.h"
#include "tune/metrics.hpp"

#include <string>
#include <string_view>

/// Configs and metrics as Cap'n Proto structs (wire.capnp): alone as bytes for messages, or inside
/// other messages, such as the journal's records.
namespace troupe::tune::internal {

/// Bytes of one message with its segment table; the same value gives the same bytes.
std::string encode(const Config& config);
std::string encode(const Metrics& metrics);

/// corrupt for anything that `encode` did not write, whatever the bytes are.
Result<Config> decode_config(std::string_view bytes);
Result<Metrics> decode_metrics(std::string_view bytes);

void write(const Value& value, wire::Value::Builder out);
void write(const Config& config, wire::Config::Builder out);
void write(const Metrics& metrics, wire::Metrics::Builder out);

/// These throw kj::Exception, or Exception with `corrupt`, on hostile input: call inside a fence.
Value read(wire::Value::Reader in);
Config read(wire::Config::Reader in);
Metrics read(wire::Metrics::Reader in);

}  // namespace troupe::tune::internal
