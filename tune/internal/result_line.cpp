#include "tune/internal/result_line.hpp"

#include "tune/internal/format.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

namespace troupe::tune::internal {
namespace {

constexpr std::string_view kConfig = "config";
constexpr std::string_view kConfigPrefix = "config/";
constexpr std::string_view kNanKeys = "nan_keys";
constexpr std::string_view kBeforeConfig = "node_ip";

struct Member {
  std::string_view name;  // below the object that it is written in
  const Value* value;
};

std::string_view head_of(std::string_view name) { return name.substr(0, name.find('/')); }
bool is_nested(std::string_view name) { return name.find('/') != std::string_view::npos; }

void begin_member(std::string& out, std::string_view name, bool& first) {
  if (!first) out += ',';
  first = false;
  append_json_text(out, name);
  out += ':';
}

void append_members(std::string& out, const std::vector<Member>& members, bool& first);

/// The member at `index` and all others under the same head, as one nested object, where the first
/// of them stands.
void append_nested(std::string& out, const std::vector<Member>& members, std::size_t index,
                   bool& first) {
  const std::string_view head = head_of(members[index].name);
  std::vector<Member> inside;
  bool is_written = false, is_value_too = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& [name, value] = members[i];
    if (name == head) is_value_too = true;
    if (!is_nested(name) || head_of(name) != head) continue;
    if (i < index) is_written = true;
    inside.push_back({name.substr(head.size() + 1), value});
  }
  if (is_value_too) {  // then it can't be an object
    begin_member(out, members[index].name, first);
    append_json(out, *members[index].value);
  } else if (!is_written) {
    begin_member(out, head, first);
    out += '{';
    bool first_inside = true;
    append_members(out, inside, first_inside);
    out += '}';
  }
}

void append_members(std::string& out, const std::vector<Member>& members, bool& first) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (is_nested(members[i].name)) {
      append_nested(out, members, i, first);
    } else {
      begin_member(out, members[i].name, first);
      append_json(out, *members[i].value);
    }
  }
}

/// Entries of nan_keys for one value; a list's elements are named by their index.
void append_nan_keys(std::string& out, const std::string& name, const Value& value, bool& first) {
  if (value.is_double() && !std::isfinite(value.as_double())) {
    begin_member(out, name, first);
    out += '"';
    append_double(out, value.as_double());
    out += '"';
  } else if (value.is_list()) {
    for (std::size_t i = 0; i < value.as_list().size(); ++i)
      append_nan_keys(out, name + "/" + std::to_string(i), value.as_list()[i], first);
  }
}

}  // namespace

bool is_config(std::string_view key) { return head_of(key) == kConfig; }

void append_row_json(std::string& out, const Metrics& row, std::string_view config_json) {
  bool first = true, has_config = config_json.empty(), any_nan = false;
  std::vector<Member> members;
  members.reserve(row.size());
  const auto write_config = [&] {
    append_members(out, members, first);
    members.clear();
    begin_member(out, kConfig, first);
    out += config_json;
    has_config = true;
  };

  out += '{';
  for (const auto& [key, value] : row) {
    if (!config_json.empty() && is_config(key)) continue;
    members.push_back({key, &value});
    any_nan = any_nan || (value.is_double() ? !std::isfinite(value.as_double()) : value.is_list());
    if (!has_config && key == kBeforeConfig) write_config();
  }
  if (!has_config) write_config();
  append_members(out, members, first);
  if (any_nan) {
    std::string names;
    bool first_name = true;
    for (const auto& [key, value] : row) append_nan_keys(names, key, value, first_name);
    if (!names.empty()) {
      begin_member(out, kNanKeys, first);
      out += '{' + names + '}';
    }
  }
  out += '}';
}

Result<ResultLine> parse_result_line(std::string_view line) {
  auto row = Metrics::from_json(line);
  if (!row) return make_error(Errc::corrupt, text_of(row.error()));
  ResultLine result;
  for (const auto& [key, value] : *row) {
    if (key.starts_with(kConfigPrefix))
      result.config.set(std::string_view(key).substr(kConfigPrefix.size()), value);
    else
      result.row.set(key, value);
  }
  return result;
}

}  // namespace troupe::tune::internal
