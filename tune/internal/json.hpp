#pragma once

#include "tune/config.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace troupe::tune::internal {

/// Keeps the order of insertion.
using Json = nlohmann::ordered_json;

/// "nan", "inf", "-inf"; JSON has no numbers for these.
std::string_view word_for(double non_finite);

/// Non-finite numbers become their words.
Json json_of(const Value& value);

/// Puts `value` at "a/b" inside the object `root`: {"a": {"b": value}}. Where a part of the path is
/// taken by something else than an object, the rest of the name stays one key, with its "/".
void place(Json& root, std::string_view path, Json value);

/// Calls `leaf(full name, value)` for each value inside the object `root`, in its order; `empty`
/// for each object without members. bad_request for an object inside a list and for nesting deeper
/// than 64.
Result<void> for_each_leaf(const Json& root, const std::function<void(std::string, Value)>& leaf,
                           const std::function<void(std::string)>& empty);

/// One line (or indented) of UTF-8; bytes that are no UTF-8 become U+FFFD.
std::string dump(const Json& json, int indent = -1);

/// bad_request when `text` is no JSON object; says where.
Result<Json> parse_object(std::string_view text);

}  // namespace troupe::tune::internal
