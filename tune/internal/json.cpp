#include "tune/internal/json.hpp"

#include <cmath>
#include <utility>

namespace troupe::tune::internal {
namespace {

constexpr int kMaxDepth = 64;

struct Unusable {
  std::string why;
};

Value value_of(const Json& json, int depth) {
  if (depth > kMaxDepth) throw Unusable{"is nested deeper than 64"};
  switch (json.type()) {
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer: return json.get<std::int64_t>();
    case Json::value_t::number_unsigned: return json.get<std::uint64_t>();
    case Json::value_t::number_float: return json.get<double>();
    case Json::value_t::string: return json.get_ref<const std::string&>();
    case Json::value_t::array: {
      Value::List list;
      list.reserve(json.size());
      for (const Json& element : json) list.push_back(value_of(element, depth + 1));
      return list;
    }
    case Json::value_t::object: throw Unusable{"has an object inside a list; give it a name"};
    default: return {};
  }
}

void visit(const Json& object, const std::string& prefix, int depth,
           const std::function<void(std::string, Value)>& leaf,
           const std::function<void(std::string)>& empty) {
  for (const auto& [key, member] : object.items()) {
    std::string name = prefix + key;
    if (!member.is_object()) {
      try {
        leaf(name, value_of(member, depth));
      } catch (const Unusable& unusable) {
        throw Unusable{"key '" + name + "' " + unusable.why};
      }
    } else if (member.empty()) {
      empty(std::move(name));
    } else if (depth >= kMaxDepth) {
      throw Unusable{"key '" + name.substr(0, 40) + "…' is nested deeper than 64"};
    } else {
      visit(member, name + "/", depth + 1, leaf, empty);
    }
  }
}

}  // namespace

std::string_view word_for(double non_finite) {
  if (std::isnan(non_finite)) return "nan";
  return non_finite > 0 ? "inf" : "-inf";
}

Json json_of(const Value& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int();
  if (value.is_double()) {
    if (std::isfinite(value.as_double())) return value.as_double();
    return word_for(value.as_double());
  }
  if (value.is_text()) return value.as_text();
  if (value.is_list()) {
    Json array = Json::array();
    for (const Value& element : value.as_list()) array.push_back(json_of(element));
    return array;
  }
  return nullptr;
}

void place(Json& root, std::string_view path, Json value) {
  Json* object = &root;
  for (auto slash = path.find('/'); slash != path.npos; slash = path.find('/')) {
    const std::string name(path.substr(0, slash));
    const auto found = object->find(name);
    if (found != object->end() && !found->is_object()) break;
    object = found != object->end() ? &*found : &((*object)[name] = Json::object());
    path.remove_prefix(slash + 1);
  }
  const Json nested = std::exchange((*object)[std::string(path)], std::move(value));
  for (const auto& [name, member] : nested.items())  // nothing, unless "a" comes after "a/b"
    if (nested.is_object()) (*object)[std::string(path) + "/" + name] = member;
}

Result<void> for_each_leaf(const Json& root, const std::function<void(std::string, Value)>& leaf,
                           const std::function<void(std::string)>& empty) {
  try {
    visit(root, "", 0, leaf, empty);
    return {};
  } catch (const Unusable& unusable) {
    return make_error(Errc::bad_request, unusable.why);
  }
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Result<Json> parse_object(std::string_view text) {
  auto json = fence(Errc::bad_request, [&] { return Json::parse(text.begin(), text.end()); });
  if (json && !json->is_object())
    return make_error(Errc::bad_request,
                      std::string("expected a JSON object, found ") + json->type_name());
  return json;
}

}  // namespace troupe::tune::internal
